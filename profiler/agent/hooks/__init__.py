"""The agent's hooks, one small module for each thing hooked.

`install(agent)` installs a hook, and adds its undo function to `agent.uninstall`.
"""
