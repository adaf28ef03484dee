"""The part of profile-train that runs inside the training process.

The agent uses the standard library only and supports Python 3.9 and newer. It uses the program's own torch, and only
once the program has imported it. It starts no thread, opens no socket and takes no lock. A part of the agent that
raises removes itself and records the failure in the facts file; training continues. In the program this package is
loaded by path as `_profile_train_agent`, so it shadows none of the program's modules.
"""
