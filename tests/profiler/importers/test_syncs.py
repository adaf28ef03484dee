"""What made the host wait for the GPU, on traces with a known cause."""

from __future__ import annotations

import pytest
from traces_made import DTOH, GEMM, HTOD, Made

from profiler.importers.analysis import analyze

UNSCALE = "aten::_amp_foreach_non_finite_check_and_unscale_"


def waiting(*operators: str, copy: str = "", before: str = "", call: str = "cudaStreamSynchronize") -> Made:
    """Return a trace: the GPU runs out of work at 60, in a wait from 40 to 65 inside these operators, until 100."""
    made = Made()
    made.step(0, 0, 200)
    made.gpu(GEMM, 10, 50, (2, 4))
    if before:
        made.host(before, 20, 24)
    for depth, name in enumerate(operators):
        made.host(name, 30 + depth, 70 - depth)
    if copy:
        made.gpu(copy, 50, 60, (36, 38), api="cudaMemcpyAsync")
    else:
        made.gpu(GEMM, 50, 60, (26, 28))
    made.host(call, 40, 65, "cuda_runtime", correlation=0)
    made.gpu(GEMM, 100, 200, (90, 95))
    return made


@pytest.mark.parametrize(
    ("trace", "cause", "operator"),
    [
        (waiting("aten::item", "aten::_local_scalar_dense", copy=DTOH), "item", "aten::_local_scalar_dense"),
        (
            waiting("aten::is_nonzero", "aten::item", "aten::_local_scalar_dense", copy=DTOH),
            "branch",
            "aten::_local_scalar_dense",
        ),
        (
            waiting("aten::item", "aten::_local_scalar_dense", copy=DTOH, before=UNSCALE),
            "grad_scaler",
            "aten::_local_scalar_dense",
        ),
        (waiting("aten::to", "aten::_to_copy", "aten::copy_", copy=HTOD), "copy_in", "aten::copy_"),
        (waiting("aten::to", "aten::_to_copy", "aten::copy_", copy=DTOH), "copy_out", "aten::copy_"),
        (waiting("aten::index", "aten::nonzero", copy=DTOH), "shape", "aten::nonzero"),
        (waiting("c10d::allreduce_", "aten::copy_", copy=DTOH), "collective", "aten::copy_"),
        (waiting(call="cudaDeviceSynchronize"), "synchronize", "cudaDeviceSynchronize"),
        (waiting("aten::unheard_of"), "other", "aten::unheard_of"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_sync_cause_is_identified(tmp_path, trace, cause, operator):
    found = analyze(trace.write(tmp_path / "t.json"))

    assert [(row.cause, row.operator, row.calls) for row in found.syncs] == [(cause, operator, 1)]
    assert found.syncs[0].idle == pytest.approx(found.window.idle_sync)
    assert found.window.idle_sync >= 40e-6


def test_non_blocking_pageable_copy_is_not_a_late_launch(tmp_path):
    """With non_blocking=True the driver still copies pageable memory into its own buffer during the call."""
    made = Made()
    made.step(0, 0, 500)
    made.gpu(GEMM, 10, 50, (2, 4))
    made.host("aten::copy_", 30, 310)
    made.gpu(HTOD, 250, 300, (40, 305), api="cudaMemcpyAsync")
    made.gpu(GEMM, 340, 500, (320, 325))

    found = analyze(made.write(tmp_path / "t.json"))

    assert [(row.cause, row.calls) for row in found.syncs] == [("copy_in", 1)]
    assert found.window.idle_sync == pytest.approx(240e-6)
    assert found.window.idle_launch == pytest.approx(10e-6)  # before the first kernel


def test_a_wait_while_work_is_queued_costs_nothing(tmp_path):
    made = Made()
    made.step(0, 0, 200)
    made.gpu(GEMM, 10, 100, (2, 4))
    made.gpu(GEMM, 100, 200, (5, 6))
    made.host("cudaDeviceSynchronize", 20, 60, "cuda_runtime", correlation=0)

    assert analyze(made.write(tmp_path / "t.json")).syncs == ()


def test_wait_in_trace_without_gpu_work_is_not_reported(tmp_path):
    """Kineto writes the calls of a process even if it could not trace its GPU work, for example while Nsight holds
    CUPTI."""
    made = Made()
    made.host("cudaDeviceSynchronize", 0, 60, "cuda_runtime", correlation=0)
    made.host("aten::mm", 70, 100)

    assert analyze(made.write(tmp_path / "t.json")).syncs == ()
