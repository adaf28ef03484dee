"""The agent's hooks, one small module for each thing hooked.

`install(agent)` installs a hook and returns the function that removes it.
"""
