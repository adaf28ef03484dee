"""The way in: the interpreter runs this before the program, because its folder is first on PYTHONPATH.

It hands on to the `sitecustomize` it shadows, leaves no trace on `sys.path`, and waits for the program to import torch.
"""


def _hand_on() -> None:
    """Run the sitecustomize that would have been run without us, under its own name; without one, there is none."""
    import os
    import sys
    from importlib.machinery import PathFinder

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != here]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError("No module named 'sitecustomize'", name="sitecustomize")  # as `site` expects
    from importlib.util import module_from_spec

    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _come_in() -> None:
    """Load the agent by path under a private name; whatever goes wrong, the program starts as if nothing had been."""
    import os

    settings = os.environ.get("PROFILE_TRAIN_AGENT")
    if not settings:
        return
    try:
        import sys
        import types

        # A package made by hand: importlib.util takes longer to import than the rest of the way in.
        package = types.ModuleType("_profile_train_agent")
        package.__path__ = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
        sys.modules["_profile_train_agent"] = package
        from _profile_train_agent.wait import wait_for_torch

        wait_for_torch(settings)
    except Exception:  # the program comes first
        return


_come_in()
_hand_on()
