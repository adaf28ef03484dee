"""The agent's hooks, one small module for each thing hooked.

`install(agent)` installs a hook, and adds what removes it to `agent.uninstall`.
"""
