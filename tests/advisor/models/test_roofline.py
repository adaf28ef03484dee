"""Operators compared with the peaks of a GPU, computed by hand."""

from __future__ import annotations

import pytest

from advisor.models.gpus import Peaks
from advisor.models.roofline import AMD_COMPUTE, EMPTY_KERNEL, TYPICAL, roofline

GPU = Peaks(fp32=20e12, tf32=160e12, half=320e12, fp8=None, fp4=None, bandwidth=2e12, watts=None)


def of(kind, arithmetic, seconds, flop, moved, kernels=1.0, peaks=GPU, amd=False):
    return roofline(
        kind=kind,
        arithmetic=arithmetic,
        seconds=seconds,
        kernels=kernels,
        flop=flop,
        moved=moved,
        peaks=peaks,
        amd=amd,
    )


def test_compute_bound_matmul():
    found = of("matmul", "bf16", 0.002, 320e9, 1e9)  # 1 ms at the peak, 0.5 ms of bytes

    assert (found.bound, found.share) == ("compute", pytest.approx(0.5))
    assert (found.rate, found.bandwidth) == (pytest.approx(160e12), pytest.approx(0.5e12))
    assert found.gain == pytest.approx(0.002 - 0.001 / TYPICAL["matmul"].compute)


def test_memory_bound_normalization():
    found = of("normalization", "bf16", 0.004, 5e9, 4e9)

    assert (found.bound, found.share) == ("memory", pytest.approx(0.5))
    assert found.gain == pytest.approx(0.004 - 0.002 / TYPICAL["normalization"].memory)


def test_kernel_faster_than_typical_has_no_gain():
    assert of("matmul", "bf16", 0.0011, 320e9, 1e9).gain == 0.0


def test_kernel_shorter_than_empty_one_is_latency_bound_without_gain():
    found = of("matmul", "bf16", 100e-6, 1e6, 1e4, kernels=10)

    assert (found.bound, found.gain) == ("latency", None)
    assert found.share == pytest.approx(max(1e6 / 320e12, 1e4 / 2e12) / 100e-6)
    assert of("copy", None, 2e-3, None, 2e12 * 1.01 * 10 * EMPTY_KERNEL, kernels=10).bound == "memory"


def test_fp32_above_its_peak_is_tf32():
    found = of("matmul", "fp32", 0.002, 160e9, 1e9)  # 80 TFLOP/s where the fp32 peak is 20

    assert found.share == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("kind", "arithmetic", "flop", "moved", "peaks"),
    [
        ("matmul", "bf16", 320e9, 1e9, None),
        ("matmul", "fp64", 320e9, 1e9, GPU),
        ("matmul", None, 320e9, 1e9, GPU),
        ("matmul", "bf16", 3200e9, 1e9, GPU),  # faster than it can be
        ("matmul", "bf16", None, None, GPU),
        ("communication", "bf16", 1e9, 1e9, GPU),
        ("other", "bf16", 1e9, 1e9, GPU),
    ],
)
def test_without_a_peak_or_a_model_there_is_no_share(kind, arithmetic, flop, moved, peaks):
    found = of(kind, arithmetic, 0.002, flop, moved, peaks=peaks)

    assert (found.share, found.bound, found.gain) == (None, None, None)


def test_matrix_cores_of_amd_attain_less():
    found = of("matmul", "bf16", 0.004, 320e9, 1e9, amd=True)

    assert found.gain == pytest.approx(0.004 - 0.001 / (TYPICAL["matmul"].compute * AMD_COMPUTE))
