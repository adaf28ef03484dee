"""The numbers of Holistic Trace Analysis (HTA) on the same traces, or why they differ.

HTA runs in the Python that PROFILE_TRAIN_HTA names, or in this one, if it is installed there (extra `compare`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from traces_made import DTOH, GEMM, HTOD, KERNEL, NCCL, Made, two_ranks
from traces_real import GPU

from profiler.importers.gpu_time import parts_of
from profiler.importers.kineto import read
from profiler.importers.launches import costs, length
from profiler.importers.steps import PROFILER_STEP
from profiler.importers.work import COMMUNICATION, GpuWork, host_of, work_of

pytestmark = pytest.mark.compare

PROGRAM = Path(__file__).with_name("holistic.py")
PYTHON = os.environ.get("PROFILE_TRAIN_HTA", sys.executable)


@cache
def installed() -> bool:
    return subprocess.run([PYTHON, "-c", "import hta"], capture_output=True, check=False).returncode == 0


def holistic(*paths: Path) -> dict:
    if not installed():
        pytest.skip("needs Holistic Trace Analysis: pip install -e '.[compare]', or PROFILE_TRAIN_HTA")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    stdout = subprocess.run([PYTHON, PROGRAM, *paths], capture_output=True, check=True, env=environment).stdout
    return json.loads(stdout)


def chosen(path: Path) -> tuple:
    """Return the trace and the work that HTA counts: of several steps, launches before the last one's end; else all."""
    trace = read(path)
    work = work_of(trace)
    marks = trace.named(lambda name: name.startswith(PROFILER_STEP))
    if len({trace.names[number] for number in np.unique(trace.ranges.name[marks])}) > 1:
        work = work.where(work.launched & (work.call_start <= trace.ranges.end[marks].max()))
    return trace, work


def compare(path: Path, queue: bool = True) -> None:
    trace, work = chosen(path)
    reference = holistic(path)
    found = parts(trace, work)
    expected = reference["breakdown"][0]
    exposed = found["communication_exposed"] + found["memory_exposed"]
    assert found["compute"] / 1e3 == pytest.approx(expected["compute"], abs=0.01)
    assert idle(found) / 1e3 == pytest.approx(expected["idle"], abs=0.01)
    assert exposed / 1e3 == pytest.approx(expected["non_compute"], abs=0.01)
    assert sum(found.values()) / 1e3 == pytest.approx(expected["kernel"], abs=0.01)
    if communication := work.spans(work.kind == COMMUNICATION).total:
        overlap = 1 - found["communication_exposed"] / communication
        assert 100 * overlap == pytest.approx(reference["overlap_percent"][0], abs=0.006)
    if queue:
        compare_queues(trace, work, reference["queue"][0])
    compare_launches(trace, work, reference["launches"][0])


def parts(trace, work: GpuWork) -> dict[str, int]:
    """Return the nanoseconds of each part of the time from the first work to the last."""
    found = parts_of(work, host_of(trace, work), int(work.start.min()), int(work.end.max()))
    return {name: spans.total for name, spans in found.items()}


def idle(found: dict[str, int]) -> int:
    return sum(spent for name, spent in found.items() if name.startswith("idle_"))


LAUNCHES = {"cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaMemsetAsync"}
"""Calls that HTA counts as launches; for queues, also cuLaunchKernel and HIP's."""
QUEUED = LAUNCHES | {
    "cuLaunchKernel",
    *(
        f"hip{name}"
        for name in ("LaunchKernel", "ExtModuleLaunchKernel", "MemsetAsync", "MemcpyAsync", "MemcpyWithStream")
    ),
}


def called_by(trace, work: GpuWork, names: set[str]) -> GpuWork:
    calls = np.array([trace.names[number] in names for number in trace.ranges.name[work.call].tolist()])
    return work.where(work.launched & calls)


def compare_queues(trace, work: GpuWork, reference: dict) -> None:
    work = called_by(trace, work, QUEUED)
    found = defaultdict(list)
    for number in np.unique(work.stream).tolist():
        _, lengths = length(work.where(work.stream == number))
        found[str(trace.streams[number][1])] = [int(lengths.max()), len(lengths)]
    # Where a launch and a start of work coincide, their order in HTA is random: one more or less.
    assert {stream: size for stream, (_, size) in found.items()} == {
        stream: size for stream, (_, size) in reference.items()
    }
    assert {s: most for s, (most, _) in found.items()} == {
        s: pytest.approx(most, abs=1) for s, (most, _) in reference.items()
    }


def compare_launches(trace, work: GpuWork, reference: dict) -> None:
    calls, delays, _ = costs(called_by(trace, work, LAUNCHES))
    assert len(calls) == reference["count"]
    assert calls.sum() / 1e3 == pytest.approx(reference["cpu"], abs=0.01)
    assert delays.sum() / 1e3 == pytest.approx(reference["delay"], rel=1e-5, abs=0.1)


@pytest.mark.parametrize("name", [*GPU, "hta_mi250"])
def test_real_traces_match_hta(real, name):
    compare(real(name))


def test_synthetic_trace_matches_hta(tmp_path):
    made = Made()
    for number in range(3):
        at = 200 * number
        made.step(number, at, at + 190)
        made.gpu(HTOD, at + 15, at + 30, (at + 12, at + 14), api="cudaMemcpyAsync")
        made.gpu(GEMM, at + 40, at + 90, (at + 31, at + 33))
        made.gpu(NCCL, at + 80, at + 120, (at + 50, at + 51), stream=20)
        made.gpu(DTOH, at + 130, at + 134, (at + 60, at + 140), api="cudaMemcpyAsync")
        made.gpu(KERNEL, at + 170, at + 195, (at + 160, at + 161))

    compare(made.write(tmp_path / "t.json"))


def test_idle_time_of_two_ranks_matches_hta(tmp_path):
    paths = two_ranks(tmp_path)
    reference = holistic(*paths)

    for rank, path in enumerate(paths):
        trace, work = chosen(path)
        assert idle(parts(trace, work)) / 1e3 == pytest.approx(reference["breakdown"][rank]["idle"])


def test_sync_records_are_not_gpu_work(real):
    """HTA counts them: in this trace, 41 ranges of cuda_sync; waits for a stream even count as computing."""
    trace, work = chosen(path := real("hta_alexnet"))
    found = parts(trace, work)
    reference = holistic(path)["breakdown"][0]

    assert found["compute"] / 1e3 < reference["compute"]
    assert sum(found.values()) / 1e3 < reference["kernel"]


def test_multicast_reductions_are_communication(real):
    """HTA recognizes NCCL's kernels by name, so it takes torch's multimem_all_reduce for computing. It also takes a
    host operator that names the stream of a Triton kernel for GPU work."""
    trace, work = chosen(path := real("tracelens_b200_eager"))
    found = parts(trace, work)
    reference = holistic(path)["breakdown"][0]

    compute = found["compute"]
    communication = work.spans(work.kind == COMMUNICATION).total
    of_the_host = reference["compute"] + reference["non_compute"] - (sum(found.values()) - idle(found)) / 1e3
    assert of_the_host == pytest.approx(idle(found) / 1e3 - reference["idle"], abs=0.01)
    assert 0 < of_the_host < 100
    assert compute / 1e3 + 2000 < reference["compute"] < (compute + communication) / 1e3 + of_the_host
