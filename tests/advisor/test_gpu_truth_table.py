"""Sick and healthy GPU runs, as metrics: which advice comes first, and which must stay away."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from gpu_runs import ADAM, FLAGS, GB, LOADER, MODEL, a_gpu, gpu_metrics

from advisor.judge import Judgement, Outcome, judge
from advisor.metrics import gpu, memory, settings, step
from advisor.metrics import input as data
from advisor.metrics.base import Metric
from advisor.rules import all_rules
from advisor.rules.base import Severity
from profiler.schema import Gpu, ScalerFact

PRECISION = {"precision-bf16", "precision-fp16-scaler", "precision-tf32", "precision-fp8"}
DATA = {rule.id for rule in all_rules() if rule.id.startswith("data-")}
COMPILE = {"compile-model", "compile-recompiles", "launch-bound-graphs"}
KERNELS = COMPILE | {"channels-last", "cudnn-benchmark", "optimizer-fused"}
MEMORY = {
    "alloc-fragmentation",
    "batch-raise",
    "grad-accum",
    "ckpt-every-n",
    "zero-1-2",
    "optimizer-8bit",
    "ckpt-unneeded",
}


@dataclass(frozen=True)
class Row:
    name: str
    first: str | None
    absent: set[str]
    changes: Mapping[Metric[Any], object] = field(default_factory=dict)
    phases: Mapping[str, float] = field(default_factory=dict)
    speedup: tuple[float, float] | None = None
    """Low and high of the first advice alone: its expected speed-up lies within."""
    memory: float | None = None


PLAIN = replace(FLAGS, autocast=False, autocast_dtype=None)
FP32 = {settings.flags: PLAIN, gpu.fp32_matmul_share: 0.72, gpu.simt_fp32_matmul_share: 0.72, gpu.matmul_share: 0.72}
FP32_A100 = {**FP32, gpu.membound_share: 0.185, gpu.achieved_matmul_flops: 16e12}
V100 = {gpu.device: a_gpu("Tesla V100-SXM2-16GB", (7, 0), 16), gpu.achieved_matmul_flops: 13e12}
P40 = {gpu.device: a_gpu("Tesla P40", (6, 1), 24)}
OUT_OF_MEMORY = {
    gpu.device: a_gpu("NVIDIA A10", (8, 6), 24),
    data.loader: replace(LOADER, batch_size=1),
    memory.oom_count: 1,
    memory.memory_pressure: True,
    memory.mem_headroom: 0.02,
    memory.mem_peak_allocated: 22.5 * GB,
    memory.mem_activations: 0.72 * 22.5 * GB,
    memory.mem_params: 1.5 * GB,
    memory.mem_grads: 1.5 * GB,
    memory.mem_optim: 3 * GB,
}
REPLICATED = {
    gpu.device: a_gpu("NVIDIA A100-SXM4-40GB", gb=40, count=8),
    settings.world_size: 8,
    settings.flags: replace(FLAGS, ddp=True),
    settings.model: replace(MODEL, parameters=1_500_000_000, trainable=1_500_000_000),
    data.loader: replace(LOADER, batch_size=1),
    memory.mem_headroom: 0.02,
    memory.memory_pressure: True,
    memory.alloc_retries: 3,
    memory.mem_peak_allocated: 38 * GB,
    memory.mem_activations: 0.15 * 38 * GB,
    memory.mem_params: 3 * GB,
    memory.mem_grads: 3 * GB,
    memory.mem_optim: 18 * GB,
}
FRAGMENTED = {
    memory.mem_peak_reserved: 78 * GB,
    memory.mem_peak_allocated: 60 * GB,
    memory.fragmentation_ratio: 18 / 78,
    memory.alloc_retries: 12,
    memory.memory_pressure: True,
    memory.mem_headroom: 0.01,
}
T4 = {
    gpu.device: a_gpu("Tesla T4", (7, 5), 16),
    settings.flags: replace(FLAGS, autocast_dtype="float16", grad_scaler=True),
    gpu.compute_dtype_mix: {"fp16": 1.0},
}
H100 = {gpu.device: a_gpu("NVIDIA H100 80GB HBM3", (9, 0))}
EAGER = replace(FLAGS, compile=False)
FP16 = replace(FLAGS, autocast_dtype="float16", grad_scaler=True)
WAITING = {"forward": 0.24, "backward": 0.46, "sync": 0.22}
HOT = {
    gpu.throttled_gpu: Gpu(index=0, uuid="GPU-0", name="A100", memory_total=80 << 30),
    gpu.throttle_reasons: ("hardware thermal slowdown",),
    gpu.thermal_throttle_share: 0.4,
    gpu.sm_clock_ratio: 0.62,
}
TINY_KERNELS = {
    **H100,
    settings.flags: EAGER,
    gpu.kernels_per_step: 2400.0,
    gpu.median_kernel_us: 4.0,
    gpu.gpu_busy_fraction: 0.35,
    gpu.launch_bound_index: 0.60,
    gpu.host_launch: 0.085,
    gpu.sm_active: 0.3,
}
NCHW = {
    settings.flags: replace(FP16, cudnn_benchmark=True),
    gpu.compute_dtype_mix: {"fp16": 1.0},
    gpu.conv_share: 0.7,
    gpu.half_conv_share: 0.7,
    gpu.fp16_matmul_share: 0.7,
    gpu.layout_share: 0.15,
    settings.scaler: ScalerFact(id=0, steps=1000, skipped=3),
}
SKIPPING = {
    settings.flags: FP16,
    gpu.compute_dtype_mix: {"fp16": 1.0},
    gpu.fp16_matmul_share: 0.7,
    settings.scaler: ScalerFact(id=0, steps=1000, skipped=137),
}
UNFUSED = {settings.optimizer: replace(ADAM, fused=False, tensors=400)}

ROWS = [
    Row("healthy", None, PRECISION | MEMORY | DATA | KERNELS | {"h2d-overlap", "host-sync-item"}),
    Row(
        "G01: fp32 without tensor cores on an A100",
        "precision-bf16",
        {"precision-fp16-scaler", "precision-tf32", "precision-fp8", "ckpt-every-n"},
        FP32_A100,
        speedup=(2.38, 3.73),
    ),
    Row(
        "G02: fp32 on a V100",
        "precision-fp16-scaler",
        {"precision-bf16", "precision-tf32"},
        {**FP32, **V100},
        speedup=(1.84, 3.15),
    ),
    Row("G03: fp32 on a Pascal", None, PRECISION | {"compile-model"}, {**FP32, **P40}),
    Row(
        "G04: the host waits for the GPU in every step",
        "host-sync-item",
        DATA,
        {gpu.gpu_busy_fraction: 0.77},
        phases=WAITING,
        speedup=(1 / (1 - 0.11), 1 / (1 - 0.22)),
    ),
    Row("G05: kernels of 4 us", "launch-bound-graphs", PRECISION | {"compile-model"}, TINY_KERNELS),
    Row(
        "G06: 30 recompiles in 100 steps",
        "compile-recompiles",
        {"compile-model", "launch-bound-graphs"},
        {step.recompiles: 30, step.recompile_share: 0.4, step.step_time_cv: 0.8},
    ),
    Row("G07: out of memory at one sample, activations", "ckpt-every-n", {"zero-1-2", "grad-accum"}, OUT_OF_MEMORY),
    Row(
        "G08: retries, eight ranks, states", "zero-1-2", {"ckpt-every-n", "grad-accum"}, REPLICATED, memory=-15.75 * GB
    ),
    Row(
        "G09: retries, fragmented",
        "alloc-fragmentation",
        (MEMORY - {"alloc-fragmentation"}) | {"offload-states"},
        FRAGMENTED,
    ),
    Row("G11: a hot GPU", "gpu-throttled", {"batch-raise"}, HOT),
    Row(
        "G12: copies from pageable memory",
        "data-pin-memory",
        {"data-more-workers", "h2d-overlap"},
        {gpu.h2d_pageable_share: 1.0, data.loader: replace(LOADER, pin_memory=False)},
        phases={"h2d": 0.25, "forward": 0.24, "backward": 0.44},
    ),
    Row(
        "G12, pinned already",
        "h2d-overlap",
        DATA,
        phases={"h2d": 0.25, "forward": 0.24, "backward": 0.44},
    ),
    Row("G13: fp16 images in NCHW", "channels-last", PRECISION | {"sdpa-flash", "cudnn-benchmark"}, NCHW),
    Row("G16: fp16 whose scale fits no step", "fp16-scaler-thrash", {"batch-raise"}, SKIPPING),
    Row("HG1: large products on an H100", None, COMPILE, H100),
    Row(
        "G17: half of the memory free, everything recomputed",
        "ckpt-unneeded",
        {"ckpt-every-n"},
        {
            settings.flags: replace(FLAGS, checkpointing=True),
            memory.mem_activations: 2.45 * GB,
            memory.mem_headroom: 0.55,
        },
        phases={"forward": 0.22, "backward": 0.66},
    ),
    Row(
        "one process for four GPUs",
        "ddp-not-dataparallel",
        {"zero-1-2"},
        {gpu.device: a_gpu(count=4), settings.flags: replace(FLAGS, data_parallel=True)},
    ),
    Row("HG2: fp16 with a stable scaler on a T4", None, PRECISION | {"sdpa-flash"}, T4),
    Row(
        "HG3: little headroom, but nothing fails and nothing more is wanted", None, MEMORY, {memory.mem_headroom: 0.04}
    ),
    Row(
        "HG4: at the power cap, as a GPU that works hard is",
        None,
        {"gpu-throttled", "gpu-link-or-hw-fault"},
        {
            **HOT,
            gpu.throttle_reasons: ("software power cap",),
            gpu.thermal_throttle_share: 0.0,
            gpu.sm_clock_ratio: 0.93,
        },
    ),
    Row("HG5: the host waits in next(), the GPU does not", None, DATA, {step.data_wait_host_fraction: 0.30}),
    Row(
        "G11's batch: a slow clock is no reason for a larger one", None, {"batch-raise"}, {gpu.launch_bound_index: 0.19}
    ),
    Row(
        "G04's launches: a GPU that waits for the host gains nothing from bf16",
        None,
        PRECISION,
        {**FP32_A100, gpu.launch_bound_index: 0.6, gpu.sm_active: 0.85},
    ),
]


def above_information(judgement: Judgement) -> list[str]:
    return [finding.rule.id for finding in judgement.findings if finding.severity is not Severity.INFO]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row(row: Row):
    judgement = judge(gpu_metrics(row.changes, phases=row.phases))
    assert [verdict.why for verdict in judgement.verdicts if verdict.outcome is Outcome.CRASHED] == []
    fired = {finding.rule.id for finding in judgement.findings}
    assert fired & row.absent == set()
    assert (above_information(judgement) or [None])[0] == row.first
    if row.speedup:
        alone = judgement.findings[0].alone
        assert alone is not None
        assert row.speedup[0] <= 1 / (1 - alone.expected) <= row.speedup[1]
    if row.memory:
        assert judgement.findings[0].advice.memory == pytest.approx(row.memory)


def test_of_a_hot_gpu_that_also_waits_for_the_host_the_heat_comes_first():
    judgement = judge(gpu_metrics({**HOT, gpu.gpu_busy_fraction: 0.77}, phases=WAITING))
    assert above_information(judgement) == ["gpu-throttled"]
    waiting = next(finding for finding in judgement.findings if finding.rule.id == "host-sync-item")
    assert waiting.in_plan is None, "what it would bring on a cool GPU is not known"


def test_precision_then_optimizer():
    phases = {"forward": 0.28, "backward": 0.56, "optimizer": 0.11}
    judgement = judge(gpu_metrics({**FP32_A100, **UNFUSED}, phases=phases))
    assert above_information(judgement) == ["precision-bf16", "optimizer-fused"]
    alone, in_plan = judgement.findings[1].alone, judgement.findings[1].in_plan
    assert alone is not None
    assert in_plan is not None
    assert in_plan.expected > alone.expected, "the same seconds of a shorter step"


def test_what_does_not_fit_comes_before_what_is_slow():
    judgement = judge(gpu_metrics({**OUT_OF_MEMORY, **FP32, gpu.device: a_gpu("NVIDIA A10", (8, 6), 24)}))
    assert above_information(judgement)[:2] == ["ckpt-every-n", "precision-bf16"]


def test_a_starved_gpu_gains_nothing_from_precision_alone():
    phases = {"data_wait": 0.4, "forward": 0.2, "backward": 0.34}
    changes = {**FP32_A100, data.loader: replace(LOADER, num_workers=1), data.queue_empty_fraction: 1.0}
    judgement = judge(gpu_metrics(changes, phases=phases))
    precision = next(finding for finding in judgement.findings if finding.rule.id == "precision-bf16")
    assert precision.alone is not None
    assert precision.alone.expected == 0
