"""Read and merge runs and traces, and align their clocks."""
