"""What a trace shows of the program's settings."""

import re
from collections import Counter
from typing import Any

import numpy as np

from profiler.importers.columns import ANNOTATION
from profiler.importers.intervals import Groups
from profiler.importers.kineto import Trace
from profiler.importers.work import FETCH, GpuWork, HostActivity

_WORKERS = f"{FETCH}_MultiProcessingDataLoaderIter"
_UPDATE = re.compile(r"Optimizer\.step#(\w+)\.step$")
_FUSED = re.compile(r"fused_?(adam|sgd|adagrad)|^triton_", re.IGNORECASE)
"""Kernels of torch's fused optimizers, and of a compiled update."""


def settings_of(trace: Trace, work: GpuWork, host: HostActivity) -> dict[str, Any]:
    """Return `workers`, `optimizer` and `fused` of a TraceFact, which the names of ranges and kernels show."""
    annotations = trace.ranges.where(trace.ranges.category == ANNOTATION)
    groups = Groups(annotations.name)
    fetches, updates = Counter[bool](), Counter[str]()
    for first, time in zip(groups.first, groups.seconds(annotations.length), strict=True):
        name = trace.names[annotations.name[first]]
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
