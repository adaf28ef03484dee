"""Watch the program from outside: drain the rings, build steps, sample GPUs and host, write the store."""
