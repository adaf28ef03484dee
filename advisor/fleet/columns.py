"""The tables of a fleet: one frozen dataclass each, from which Parquet files and their published schema are generated.

Shares are 0 to 1, times seconds, hours hours. `None` means "not measured", never zero.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

VERSION = 1

Status = Literal["complete", "partial", "unreadable"]

CAUSES = {
    "data_wait": "Waiting for data",
    "loader_overhead": "Fetching ready batches",
    "h2d": "Copying to the GPU",
    "communication": "Communication",
    "sync": "Host waits for the GPU",
    "gc": "Garbage collection",
    "checkpoint_save": "Saving checkpoints",
    "epoch_start": "Starting epochs",
}
"""Causes of lost hours. The first six are phases of a step, the others lie between steps; none overlaps another."""

BETWEEN_STEPS = {"checkpoint_save": "checkpoint_save_share", "epoch_start": "epoch_restart_share"}
"""The metric of each cause between steps, a share of the run time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run: one row per import of its folder. The newest row of a `run_id` counts."""

    run_id: str
    """ID of the recording; for an unreadable folder, a digest of its address."""
    import_id: str
    """The import that wrote the row; part of the names of its files."""
    imported_at: float
    """Unix time of the import."""
    day: str
    """Day on which the run started (UTC), otherwise the day of the import; also the partition."""
    folder: str
    """Path or URL of the run folder."""
    fingerprint: str
    """Digest of the names, sizes and times of the folder's files: unchanged ones are not imported again."""
    status: Status
    """complete; partial: no readable result.json, so only what was run is known; unreadable."""
    note: str = ""
    """Why the run is not complete."""
    version: str | None = None
    """Version of profile-train."""
    started: float | None = None
    """Unix time."""
    duration_s: float | None = None
    outcome: str | None = None
    """completed, failed, killed, running or attached."""
    command: str | None = None
    script: str | None = None
    """Path of the script below its repository; without one, as in the command."""
    project: str | None = None
    """Folder name of the script's git repository."""
    commit_id: str | None = None
    user_name: str | None = None
    host: str | None = None
    """Host of the first node."""
    nodes: int | None = None
    ranks: int | None = None
    device: str | None = None
    """Name of the first GPU; without a GPU, the model of the CPU."""
    work: str | None = None
    """Digest of what makes step times comparable: script, model, batch, micro-steps, ranks and device; None unless
    model and batch were measured."""
    gpu_hours: float | None = None
    cpu_hours: float | None = None
    """Hours of all cores that the run may use; only for runs without a GPU."""
    gpu_price: float | None = None
    """Price of a GPU-hour that was declared for the run."""
    steps: int | None = None
    step_time_s: float | None = None
    """Mean of the steady steps."""
    step_p50_s: float | None = None
    crowded: bool | None = None
    """Whether other programs used the cores."""
    lost_data_wait: float | None = None
    """Share of the run's hours lost to this cause; the other `lost_` columns likewise. They do not overlap."""
    lost_loader_overhead: float | None = None
    lost_h2d: float | None = None
    lost_communication: float | None = None
    lost_sync: float | None = None
    lost_gc: float | None = None
    lost_checkpoint_save: float | None = None
    lost_epoch_start: float | None = None
    plan_saves: float | None = None
    """Share of the run's hours that all its advice together would save, according to its plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceRow:
    """A piece of advice of a run, one row each; advice that is for information only is left out."""

    run_id: str
    import_id: str
    day: str
    project: str | None = None
    script: str | None = None
    rule: str
    title: str
    started: float | None = None
    gpu_hours: float | None = None
    """GPU-hours of the run."""
    cpu_hours: float | None = None
    position: int
    """Place in the run's plan, from 0."""
    saves_alone: float | None = None
    """Share of the run's hours saved if this change alone is made; None if no gain was predicted."""
    saves_in_plan: float | None = None
    """Share saved after the changes before it; the shares of a run add up to its `plan_saves`."""


TABLES: dict[str, type] = {"runs": RunRow, "advice": AdviceRow}

_SQL = {"str": "VARCHAR", "float": "DOUBLE", "int": "BIGINT", "bool": "BOOLEAN", "Status": "VARCHAR"}


def columns(table: str) -> dict[str, str]:
    """Return the SQL type of each column."""
    return {field.name: _SQL[str(field.type).removesuffix(" | None")] for field in fields(TABLES[table])}
