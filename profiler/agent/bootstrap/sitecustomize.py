"""The entry point of the agent, run by the interpreter before the program.

The interpreter finds it because its folder is first on PYTHONPATH. It waits for the program to import torch, removes
its folder from `sys.path`, and imports the `sitecustomize` that it shadows. Every process that the program starts
inherits PYTHONPATH, even Python 2, so this file uses no syntax that is too new for it.
"""

import os
import sys

here = os.path.dirname(__file__)

try:
    settings = os.environ["PROFILE_TRAIN_AGENT"]
    import types

    # Load the agent by path, under a private name; importing importlib.util would take longer than all the rest.
    package = types.ModuleType("_profile_train_agent")
    package.__path__ = [os.path.dirname(here)]
    sys.modules["_profile_train_agent"] = package
    from _profile_train_agent.importing import wait_for_torch

    wait_for_torch(settings)
except Exception:  # the program must run anyway
    sys.modules.pop("_profile_train_agent", None)

sys.path[:] = [entry for entry in sys.path if entry != here]
ours = sys.modules.pop("sitecustomize")  # keep a reference: Python 2 empties a module that has none
__import__("sitecustomize")  # raises if there is none, as `site` expects
