"""One small file a thing hooked. `install(agent)` puts it in and returns what takes it out again."""
