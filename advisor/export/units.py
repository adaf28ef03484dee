"""Define the units of a recording's columns, and the names they are exported under."""

from profiler.schema import BETWEEN, PHASES, Batch

_BY_UNIT = {
    "s": (
        *("time", "start", "started", "started_at", "ended", "duration", "recorder_cpu", "hooks", "windows"),
        *(*PHASES, *BETWEEN, "fetch_host", "host_launch", "collate", "cost", "total", "busy", "median_kernel"),
        *("idle", "idle_launch", "idle_stalled", "idle_allocating", "idle_sync", "idle_data", "idle_other"),
        *("h2d_pageable", "communication_exposed", "host", "gap"),
    ),
    "B": (
        *("memory_total", "memory_used", "process_memory", "rss", "memory_available"),
        *("allocated", "allocated_peak", "reserved", "reserved_peak", "bytes"),
    ),
    "B/s": ("read", "write"),
    "W": ("power", "power_limit"),
    "J": ("energy",),
    "MHz": ("sm_clock", "sm_clock_max", "memory_clock"),
    "Cel": ("temperature",),
    "cores": ("cpu", "cpu_workers", "machine_cpu", "steal"),
    "1": ("budget", "reached", "scatter", "utilization", "sm_active", "sm_occupancy", "tensor_active", "dram_active"),
    "count": (
        *("count", "micro_steps", "batches", "forwards", "fetches_empty", "queue_depth", "samples", "files", "events"),
        *("events_lost", "retries", "ooms", "steps", "kernels", "calls", "processes", "zeros", "cores", "cores_total"),
        *("flop", "run"),
    ),
}
UNITS = {name: unit for unit, names in _BY_UNIT.items() for name in names}

_SUFFIXES = {
    "s": "_s",
    "B": "_bytes",
    "B/s": "_bytes_per_s",
    "W": "_watts",
    "J": "_joules",
    "MHz": "_mhz",
    "Cel": "_celsius",
    "cores": "_cores",
}
"""The suffix of each unit; shares and counts have none."""


def unit(table: type, column: str) -> str:
    """Return the unit of a numeric column; empty for numbers that measure nothing, such as a PID."""
    return "s" if table is Batch and column == "cpu" else UNITS.get(column, "")


def heading(table: type, column: str) -> str:
    """Return the column's name with its unit."""
    suffix = _SUFFIXES.get(unit(table, column), "")
    return column if column.endswith(suffix) else column + suffix
