"""Advice on a trace: as much as an expert who sees its kernels and gaps would give, and no more."""

from __future__ import annotations

import pytest
from traces_made import ALL_REDUCE, GEMM, GPU, HTOD, KERNEL, NCCL, Made

from advisor.judging.judge import Judgment, judge
from advisor.metrics.base import Metrics
from advisor.metrics.gpu import host_stall_fraction, is_compiled, launch_bound_index
from advisor.metrics.step import modeled_phases, step_time_uncertainty
from advisor.publish import report_of
from advisor.report.conclusion import conclude
from advisor.report.wording import guidance
from advisor.rules.base import Severity
from advisor.runs.traces import load
from advisor.runs.traces import load as load_traces

H100 = {**GPU, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9}


def made(distributed=None, gpu=H100) -> Made:
    about = {"distributedInfo": {"rank": 0, "world_size": 8, "backend": "nccl"}} if distributed else {}
    return Made(deviceProperties=[gpu], **about)


def kernels(trace: Made, number: int, *, begin: float = 0, length: float, gap: float, name: str = KERNEL) -> float:
    """Add kernels, each launched when the one before has ended; return the end of the last gap."""
    for _ in range(number):
        trace.gpu(name, begin + gap, begin + gap + length, (begin + gap - 3, begin + gap - 1))
        begin += gap + length
    return begin


def late(number: int = 60, steps: int = 1) -> Made:
    """Return kernels of 4 us, 40 us apart: inference, or a trace without operators."""
    trace, at = made(), 0.0
    for step in range(steps):
        begin, at = at, kernels(trace, number, begin=at, length=4, gap=40)
        trace.step(step, begin, at)
    return trace


def unmarked(number: int = 60) -> Made:
    trace = made()
    kernels(trace, number, length=4, gap=40)
    return trace


def start_of_a_program() -> Made:
    """Return the start of a program: weights are copied, seconds pass, some kernels run; nothing repeats."""
    trace = made()
    trace.gpu(HTOD, 0, 3000, (0, 3001), api="cudaMemcpyAsync")
    at = kernels(trace, 40, begin=9_000_000, length=4, gap=40)
    kernels(trace, 40, begin=at + 3_000_000, length=4, gap=40)
    return trace


def healthy(steps: int = 3) -> Made:
    """Return bf16 matmuls without gaps, launched in time; the gradients are reduced meanwhile."""
    trace = made(distributed=True)
    for step in range(steps):
        at = 10_000 * step
        trace.step(step, at, at + 10_000)
        for number in range(95):
            begin = at + 100 * number
            trace.gpu(GEMM, begin, begin + 100, (at + 2 * number - 300, at + 2 * number - 299))
        trace.gpu(KERNEL, at + 9500, at + 10_000, (at + 250, at + 251))
        trace.gpu(NCCL, at + 5000, at + 9000, (at + 200, at + 201), stream=20, **ALL_REDUCE)
    return trace


def one_reduction_a_parameter() -> Made:
    """Return gradients that are reduced while nothing computes; the host is far ahead."""
    trace = made(distributed=True)
    trace.step(0, 0, 10_000)
    for number in range(50):
        at = 200 * number
        trace.gpu(GEMM, at, at + 120, (2 * number, 2 * number + 1))
        trace.gpu(NCCL, at + 120, at + 200, (2 * number, 2 * number + 1), stream=20, **ALL_REDUCE)
    return trace


def waiting() -> Made:
    """Return kernels after which the host waits for the GPU; no steps are marked."""
    trace = made()
    for at in range(0, 60 * 400, 400):
        trace.gpu(GEMM, at + 100, at + 400, (at + 90, at + 95))
        trace.wait(at + 96, at + 402)
    return trace


def pageable() -> Made:
    """Return steps that begin with a copy of their batch that nothing hides."""
    trace = made()
    for step in range(4):
        at = 10_000 * step
        trace.step(step, at, at + 10_000)
        trace.gpu(HTOD, at + 10, at + 2010, (at + 1, at + 5), api="cudaMemcpyAsync")
        for number in range(79):
            begin = at + 2010 + 100 * number
            trace.gpu(GEMM, begin, begin + 100, (at + number + 10, at + number + 11))
    return trace


def slow_host(repeated: int = 40) -> Made:
    """Return batches of kernels between which the host does something else for 2 ms."""
    trace, at = made(), 0.0
    for _ in range(repeated):
        at = kernels(trace, 5, begin=at + 2000, length=300, gap=10, name=GEMM)
    trace.step(0, 0, at)
    return trace


@pytest.fixture
def judged(tmp_path):
    def judged(trace: Made) -> Judgment:
        return judge(Metrics(load([trace.write(tmp_path / "t.json")])))

    return judged


def said(judgment: Judgment) -> dict[str, Severity]:
    return {found.rule.id: found.severity for found in judgment.findings if found.severity is not Severity.INFO}


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        (late(), {"launch-bound-graphs": Severity.ACTION}),
        (late(steps=4), {"launch-bound-graphs": Severity.ACTION}),
        (unmarked(), {"launch-bound-graphs": Severity.ACTION}),
        (late(29), {}),
        (start_of_a_program(), {}),
        (healthy(), {}),
        (healthy(1), {}),
        (one_reduction_a_parameter(), {"comm-overlap": Severity.SUGGEST}),
        (waiting(), {"host-sync-item": Severity.SUGGEST}),
        (pageable(), {"data-pin-memory": Severity.SUGGEST}),
        (slow_host(), {"host-stall": Severity.SUGGEST}),
        (slow_host(7), {}),
    ],
    ids=[
        "late launches in one step",
        "late launches in several steps",
        "late launches in a trace without steps",
        "too few kernels",
        "the start of a program",
        "healthy",
        "healthy, a single step",
        "one reduction for each parameter",
        "a host that waits for the GPU",
        "batches in pageable memory",
        "a host that stalls repeatedly",
        "a host that stalls a few times",
    ],
)
def test_the_advice_on_a_trace(judged, trace, expected):
    assert said(judged(trace)) == expected


def test_inconsistent_steps_reduce_advice_to_suggestion(judged):
    trace, at = made(), 0.0
    for step, length in enumerate((4, 4, 60, 4)):
        begin, at = at, kernels(trace, 60, begin=at, length=length, gap=40)
        trace.step(step, begin, at)

    assert said(judged(trace)) == {"launch-bound-graphs": Severity.SUGGEST}


def test_report_on_trace_without_steps_starts_with_advice(tmp_path):
    report = report_of(load_traces([unmarked().write(tmp_path / "t.json")]))

    assert report.advice[0].title.lower() in guidance(report).lower()
    assert (report.steps, report.before) == (None, None)


def computing() -> Made:
    """Return inference with short gaps: no backward pass shows where in a step a kernel is."""
    trace = made()
    trace.step(0, -100, 3000)
    for number in range(60):
        trace.gpu(GEMM, 50 * number, 50 * number + 44, (number - 100, number - 99))
    return trace


@pytest.mark.parametrize(
    ("trace", "kind"), [(computing(), "nothing"), (late(29), "unsure"), (start_of_a_program(), "no_steps")]
)
def test_conclusion_from_trace(tmp_path, trace, kind):
    assert conclude(report_of(load_traces([trace.write(tmp_path / "t.json")]))).kind == kind


def test_trace_of_few_kernels_suggests_recording_again(tmp_path):
    trace = made()
    trace.gpu(KERNEL, 0, 1, (-2, -1))
    report = report_of(load_traces([trace.write(tmp_path / "t.json")]))

    assert report.advice[0].rule == "window-too-short"
    assert guidance(report) == report.advice[0].finding.advice.then


def test_gap_over_one_millisecond_is_host_stall(tmp_path):
    trace = made()
    end = kernels(trace, 50, length=4, gap=6)
    end = kernels(trace, 50, begin=end + 1500, length=4, gap=6)
    m = Metrics(load([trace.write(tmp_path / "t.json")]))

    whole = end - 6  # the first gap is before the trace begins
    assert m[host_stall_fraction] == pytest.approx(1506 / whole)
    events = 100  # launches; recording what runs on the GPU does not delay the host
    assert m[launch_bound_index] == pytest.approx((98 * 6 - events) / (whole - 1506 - events))
    assert m[step_time_uncertainty] == pytest.approx((1506**2 + 98 * 6**2 + 100 * 4**2) ** 0.5 / whole)
    assert m[modeled_phases] == {"forward": pytest.approx(whole * 1e-6)}


def test_compiled_model_is_recognized_from_kernel_names(tmp_path):
    trace = late()
    assert not Metrics(load([trace.write(tmp_path / "t.json")]))[is_compiled]

    trace.gpu("triton_poi_fused_add_0", 2636, 2640, (2630, 2631))
    assert Metrics(load([trace.write(tmp_path / "u.json")]))[is_compiled]
