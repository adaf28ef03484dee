"""The way in: the interpreter runs this before the program, because its folder is first on PYTHONPATH.

It hands on to the `sitecustomize` it shadows, leaves no trace on `sys.path`, and waits for the program to import torch.
"""


def _hand_on() -> None:
    """Run the sitecustomize that would have been run without us, under its own name; without one, there is none."""
    import importlib.machinery
    import importlib.util
    import os
    import sys

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError("No module named 'sitecustomize'", name="sitecustomize")  # as `site` expects
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _come_in() -> None:
    """Load the agent by path under a private name; whatever goes wrong, the program starts as if nothing had been."""
    import os

    settings = os.environ.get("PROFILE_TRAIN_AGENT")
    if not settings:
        return
    try:
        import importlib.util
        import sys

        folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        spec = importlib.util.spec_from_file_location(
            "_profile_train_agent", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
        )
        if spec is None or spec.loader is None:
            return
        package = importlib.util.module_from_spec(spec)
        sys.modules["_profile_train_agent"] = package
        spec.loader.exec_module(package)
        from _profile_train_agent import start

        start.wait_for_torch(settings)
    except Exception:  # the program comes first
        return


_come_in()
_hand_on()
