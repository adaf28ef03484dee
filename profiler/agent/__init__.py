"""What runs inside the training process.

Standard library only, on Python 3.9 or newer; the program's own torch is used once the program has imported it. No
thread, no socket, no lock. Whatever raises in here takes itself out and says so in the facts file; training goes on.
In a program this package is loaded by path as `_profile_train_agent`, so that nothing of the program's is shadowed.
"""
