"""The entry point of the agent, run by the interpreter before the program.

The interpreter finds it because its folder is first on PYTHONPATH. It waits for the program to import torch, takes its
folder off `sys.path`, and hands on to the `sitecustomize` it shadows. Every process the program starts inherits
PYTHONPATH, even a Python 2, so this file uses no syntax too new for that.
"""

import os
import sys

here = os.path.dirname(__file__)

try:
    settings = os.environ["PROFILE_TRAIN_AGENT"]
    import types

    # The agent, by path and under a private name; importlib.util would take longer to import than all the rest here.
    package = types.ModuleType("_profile_train_agent")
    package.__path__ = [os.path.dirname(here)]
    sys.modules["_profile_train_agent"] = package
    from _profile_train_agent.importing import wait_for_torch

    wait_for_torch(settings)
except Exception:  # the program comes first
    sys.modules.pop("_profile_train_agent", None)

sys.path[:] = [entry for entry in sys.path if entry != here]
ours = sys.modules.pop("sitecustomize")  # a name for it: Python 2 empties a module that nobody holds
__import__("sitecustomize")  # where there is none this raises, as `site` expects
