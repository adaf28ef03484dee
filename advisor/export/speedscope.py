"""Export the sampled stacks for speedscope.app: one profile for each process role and phase.

The format: https://www.speedscope.app/file-format-schema.json. Samples are sums, so only their weights are meaningful,
not their order.
"""

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from advisor import atomic_write
from advisor.export.nodes import Node
from advisor.metrics.base import Metrics
from profiler.errors import ProfilerError
from profiler.schema import Stack
from profiler.version import __version__

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def write(_nodes: Iterable[Node], metrics: Metrics, path: Path) -> None:
    """Write the stacks of all ranks as JSON.

    Raises:
        ProfilerError: no stacks were sampled, or the file could not be written.
    """
    parts: dict[tuple[int, str, str], list[Stack]] = defaultdict(list)
    for rank in metrics.profile.ranks:
        for row in rank.stacks:
            parts[rank.process.rank, row.role, row.phase].append(row)
    if not parts:
        raise ProfilerError("No Python stacks were sampled in this run.", "Record it again, without --no-stacks.")
    numbers: dict[tuple[str, int, str], int] = {}
    profiles = [_profile(f"rank {rank} {role}: {phase}", rows, numbers) for (rank, role, phase), rows in parts.items()]
    profiles.sort(key=lambda profile: -float(profile["endValue"]))
    frames = [{"name": function, "file": file, "line": line} for file, line, function in numbers]
    document = {"$schema": SCHEMA, "exporter": f"profile-train {__version__}", "shared": {"frames": frames}}
    atomic_write.write(path, json.dumps({**document, "profiles": profiles}, separators=(",", ":")))


def _profile(name: str, rows: list[Stack], numbers: dict[tuple[str, int, str], int]) -> dict[str, Any]:
    samples = [
        [numbers.setdefault((file, line, function), len(numbers)) for file, line, function, _ in row.frames]
        for row in rows
    ]
    return {
        "type": "sampled",
        "name": name,
        "unit": "seconds",
        "startValue": 0,
        "endValue": sum(row.total for row in rows),
        "samples": samples,
        "weights": [row.total for row in rows],
    }
