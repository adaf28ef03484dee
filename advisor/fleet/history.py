"""The earlier runs of one script, from the data set of a fleet."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.fleet.dataset import opened
from advisor.fleet.read import script_of
from profiler.schema import Run

MOST = 20
QUERY = """
SELECT started, step_p50_s, folder, commit_id, host, device, work FROM runs
WHERE script = ? AND coalesce(project, '') = ? AND run_id <> ? AND started < ? AND step_p50_s > 0
ORDER BY started DESC LIMIT ?
"""


@dataclass(frozen=True, slots=True)
class PastRun:
    """An earlier run of the same script."""

    started: float
    """Unix time."""
    step: float
    """Median step in seconds."""
    folder: str
    commit: str | None
    changed: tuple[str, ...]
    """What differs from the run before it: commit, host, device, or work (model, batch, ranks)."""


def past_runs(fleet: Path, run: Run) -> tuple[PastRun, ...]:
    """Return the latest earlier runs of this run's script, the newest first.

    Raises:
        ProfilerError: there is no data set, or no DuckDB to read it with.
    """
    script = script_of(run.command, run.cwd, run.project)
    with opened(fleet) as connection:
        parameters = [script, run.project or "", run.id, run.started_at, MOST + 1]
        rows = connection.execute(QUERY, parameters).fetchall()
    return tuple(_past(newer, older) for newer, older in zip(rows, [*rows[1:], None], strict=True))[:MOST]


def _past(row: Sequence[Any], before: Sequence[Any] | None) -> PastRun:
    started, step, folder, *state = row
    names = ("commit", "host", "device", "work")
    earlier_state = (None,) * len(names) if before is None else before[3:]
    pairs = zip(names, state, earlier_state, strict=True)
    changed = tuple(name for name, value, earlier_value in pairs if value and earlier_value and value != earlier_value)
    return PastRun(started, step, folder, state[0], changed)
