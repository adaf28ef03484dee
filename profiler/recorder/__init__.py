"""Watches from outside: drains the rings, builds steps, samples GPUs and host, writes the store."""
