"""What a trace shows of the program's settings."""

import re
from collections import Counter
from typing import Any

import numpy as np

from profiler.importers.columns import ANNOTATION
from profiler.importers.kineto import Trace
from profiler.importers.tables import summed
from profiler.importers.work import FETCH, GpuWork, HostActivity

_WORKERS = f"{FETCH}_MultiProcessingDataLoaderIter"
_UPDATE = re.compile(r"Optimizer\.step#(\w+)\.step$")
_FUSED = re.compile(r"fused_?(adam|sgd|adagrad)|^triton_", re.IGNORECASE)
"""Kernels of torch's fused optimizers, and of a compiled update."""


def settings_of(trace: Trace, work: GpuWork, host: HostActivity) -> dict[str, Any]:
    """Return `workers`, `optimizer` and `fused` of a TraceFact, which the names of ranges and kernels show."""
    spent = _annotations(trace)
    fetches, updates = Counter[bool](), Counter[str]()
    for name, time in spent.items():
        if name.startswith(FETCH):
            fetches[name.startswith(_WORKERS)] += time
        elif found := _UPDATE.match(name):
            updates[found[1]] += time
    updating = np.unique(work.name[host.updates.covers(work.asked)]).tolist()
    return {
        "workers": fetches.most_common(1)[0][0] if fetches else None,
        "optimizer": updates.most_common(1)[0][0] if updates else "",
        "fused": any(_FUSED.search(trace.names[number]) for number in updating) if updating else None,
    }


def _annotations(trace: Trace) -> dict[str, int]:
    """Return the nanoseconds in annotated ranges, by name."""
    ranges = trace.ranges
    rows = np.flatnonzero(ranges.category == ANNOTATION)
    sums = summed(ranges.name[rows], np.zeros(len(rows), bool), ranges.length[rows])
    return {trace.names[number]: time for number, _, _, time in sums}
