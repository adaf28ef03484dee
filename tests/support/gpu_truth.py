"""The truth table's GPU rows: runs with and without a problem, as metrics, and the first advice that each must get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpu_runs import ADAM, FLAGS, GB, LOADER, MODEL, a_gpu

from advisor.judging.judge import Judgment
from advisor.metrics import attention, between, communication, gpu, hardware, host, matmul, memory, settings, step
from advisor.metrics import input as data
from advisor.metrics.base import Metric
from advisor.rules import all_rules
from advisor.rules.base import Severity
from profiler.schema import DdpFact, Gpu, ScalerFact

PRECISION = {"precision-bf16", "precision-fp16-scaler", "precision-tf32", "precision-fp8"}
DATA = {rule.id for rule in all_rules() if rule.id.startswith("data-")}
COMPILE = {"compile-model", "compile-recompiles", "launch-bound-graphs"}
KERNELS = COMPILE | {"channels-last", "cudnn-benchmark", "optimizer-fused"}
SHAPES = {"sdpa-flash", "dims-align", "fused-ce", "sparse-attention"}
MEMORY = {
    "alloc-fragmentation",
    "batch-raise",
    "grad-accum",
    "ckpt-selective",
    "ckpt-every-n",
    "zero-1-2",
    "zero-3-fsdp",
    "zero-overkill",
    "offload-states",
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
    then: tuple[str, ...] = ()
    """The advice after the first, for a run with several problems; it has no other advice above information."""
    speedup: tuple[float, float] | None = None
    """Low and high bound of the expected speed-up of the first advice alone."""
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
LARGE = replace(MODEL, parameters=6 * GB, trainable=6 * GB, bytes=12 * GB, block_bytes=350_000_000)
TOO_LARGE_FOR_STAGE_2 = {
    **REPLICATED,
    settings.model: LARGE,
    memory.oom_count: 1,
    memory.mem_headroom: 0.01,
    memory.mem_params: 12 * GB,
    memory.mem_grads: 12 * GB,
    memory.mem_optim: 3 * GB,
    settings.flags: replace(FLAGS, ddp=True, zero_stage=1),
}
EXHAUSTED = {
    **REPLICATED,
    settings.flags: replace(FLAGS, fsdp=True, zero_stage=3, checkpointing=True),
    settings.model: replace(LARGE, parameters=48 * GB, trainable=48 * GB, bytes=96 * GB),
    settings.optimizer: replace(ADAM, name="AdamW8bit", module="torchao.optim.adam"),
    memory.mem_params: 12 * GB,
    memory.mem_grads: 12 * GB,
    memory.mem_optim: 12 * GB,
    host.host_memory_available: 1000 * GB,
    host.local_ranks: 8,
}
STAGE_3 = {
    gpu.device: a_gpu(count=8),
    settings.world_size: 8,
    settings.flags: replace(FLAGS, fsdp=True, zero_stage=3),
    memory.mem_params: 1.5 / 8 * GB,
    memory.mem_grads: 1.5 / 8 * GB,
    memory.mem_optim: 3 / 8 * GB,
}
WAITING_FOR_WEIGHTS = {"forward": 0.2, "backward": 0.42, "communication": 0.30}
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
    hardware.throttled_gpu: Gpu(index=0, uuid="GPU-0", name="A100", memory_total=80 << 30),
    hardware.throttle_reasons: ("hardware thermal slowdown",),
    hardware.thermal_throttle_share: 0.4,
    hardware.sm_clock_ratio: 0.62,
}
TINY_KERNELS: dict[Metric[Any], object] = {
    **H100,
    settings.flags: EAGER,
    gpu.kernels_per_step: 2400.0,
    gpu.median_kernel_us: 4.0,
    gpu.gpu_busy_fraction: 0.35,
    gpu.launch_bound_index: 0.60,
    gpu.host_launch: 0.085,
    hardware.sm_active: 0.3,
}
NCHW = {
    settings.flags: replace(FP16, cudnn_benchmark=True),
    gpu.compute_dtype_mix: {"fp16": 1.0},
    gpu.conv_share: 0.7,
    gpu.fp16_matmul_share: 0.7,
    gpu.layout_share: 0.15,
    settings.scaler: ScalerFact(steps=1000, skipped=3),
}
SKIPPING = {
    settings.flags: FP16,
    gpu.compute_dtype_mix: {"fp16": 1.0},
    gpu.fp16_matmul_share: 0.7,
    settings.scaler: ScalerFact(steps=1000, skipped=137),
}
RESNET = {
    gpu.device: a_gpu("NVIDIA GeForce RTX 4090", (8, 9), 24),
    settings.flags: replace(PLAIN, compile=False),
    gpu.matmul_share: 0.6,
    gpu.conv_share: 0.58,
    gpu.fp32_matmul_share: 0.6,
    gpu.simt_fp32_matmul_share: 0.02,
    gpu.simt_fp32_gemm_share: 0.02,
    gpu.compute_dtype_mix: {"tf32": 0.97, "fp32": 0.03},
    gpu.bf16_gemm_share: 0.0,
    gpu.membound_share: 0.38,
    gpu.layout_share: 0.12,
    attention.attention_share: 0.0,
}
SIMT_4090 = {
    **FP32,
    gpu.device: a_gpu("NVIDIA GeForce RTX 4090", (8, 9), 24),
    gpu.simt_fp32_gemm_share: 0.72,
    gpu.compute_dtype_mix: {"fp32": 1.0},
    gpu.bf16_gemm_share: 0.0,
}
REPLAYED = {**FP32_A100, gpu.matmul_share: 0.98, gpu.membound_share: 0.01}
IN_NO_TABLE = {
    **FP32,
    gpu.device: replace(a_gpu("NVIDIA RTX 4000 Ada Generation", (8, 9), 20), multiprocessors=48, sm_clock_max=2175),
}
UNFUSED = {settings.optimizer: replace(ADAM, fused=False, tensors=400)}

# 350 M fp32 gradients over 8 ranks at 10 GB/s: of 345 ms per step, 110 ms are reductions that the backward pass does
# not hide; scaled here to 100 ms.
REDUCING = {
    gpu.device: a_gpu(count=8),
    settings.world_size: 8,
    settings.flags: replace(FLAGS, ddp=True),
    settings.on_cpu: False,
    communication.ddp: DdpFact(
        id=1,
        backend="nccl",
        gradient_bytes=1_400_000_000,
        dtypes=("float32",),
        bucket_cap=25 * 2**20,
        buckets=54,
        passes=100,
        reduced=100,
    ),
    communication.reductions_per_step: 1.0,
    communication.comm_total: 0.0245 / 0.345,
    communication.exposed_comm_seconds: 0.0110 / 0.345,
    communication.exposed_transfer: 0.0110 / 0.345,
    communication.straggler_wait: 0.0,
    communication.straggler_skew: 0.0,
    communication.common_step_count: 60,
}
REDUCING_PHASES = {
    "data_wait": 0.0,
    "h2d": 0.0,
    "forward": 0.075 / 0.345,
    "backward": 0.15 / 0.345,
    "optimizer": 0.01 / 0.345,
    "communication": 0.110 / 0.345,
    "other": 0.0,
}

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
    Row(
        "G19: images in fp32 and NCHW on a 4090, eager: TF32 convolutions",
        "precision-bf16",
        {"precision-tf32", "precision-fp16-scaler"},
        RESNET,
        then=("channels-last", "compile-model"),
    ),
    Row(
        "G20: fp32 without tensor cores on a GeForce",
        "precision-bf16",
        {"precision-tf32", "precision-fp16-scaler"},
        SIMT_4090,
        speedup=(1.3, 2.6),
    ),
    Row(
        "G21: fp32 on a GPU that no table has",
        "precision-bf16",
        {"precision-fp16-scaler", "precision-fp8"},
        IN_NO_TABLE,
    ),
    Row(
        "G22: forward and backward replayed from a CUDA graph, in fp32",
        "precision-bf16",
        {"precision-fp16-scaler"},
        REPLAYED,
        phases={"forward": 0.0, "backward": 0.0, "optimizer": 0.03, "other": 0.95},
    ),
    Row(
        "HG6: a GPU with nothing to do but small matmuls, that bf16 would not shorten",
        None,
        PRECISION,
        {**FP32_A100, gpu.host_launch: 0.095},
    ),
    Row(
        "G23: fp32 on a slice of an A100",
        "precision-bf16",
        {"precision-fp16-scaler", "precision-fp8"},
        {
            **FP32,
            gpu.device: replace(
                a_gpu("NVIDIA A100-SXM4-40GB MIG 2g.10gb", (8, 0), 10), multiprocessors=28, sm_clock_max=1410
            ),
        },
    ),
    Row(
        "G24: fp32 on an MI300X",
        "precision-bf16",
        {"precision-fp16-scaler"},
        {**FP32, gpu.device: replace(a_gpu("AMD Instinct MI300X", (9, 4), 192), is_amd=True)},
    ),
    Row(
        "G25: a batch that leaves an H100 idle and nine tenths of its memory free",
        "batch-raise",
        (MEMORY - {"batch-raise"}) | (PRECISION - {"precision-fp8"}) | {"launch-bound-graphs"},
        {
            **H100,
            memory.mem_headroom: 0.9,
            memory.mem_activations: 2 * GB,
            hardware.sm_active: 0.3,
            gpu.launch_bound_index: 0.21,
            gpu.gpu_busy_fraction: 0.75,
        },
    ),
    Row(
        "HG7: images in bf16 and channels_last on a 4090, compiled",
        None,
        PRECISION | KERNELS,
        {
            **RESNET,
            settings.flags: FLAGS,
            gpu.fp32_matmul_share: 0.01,
            gpu.simt_fp32_matmul_share: 0.01,
            gpu.simt_fp32_gemm_share: 0.01,
            gpu.layout_share: 0.005,
        },
    ),
    Row(
        "HG8: bf16 on an MI300X",
        None,
        (PRECISION - {"precision-fp8"}) | KERNELS | MEMORY,
        {gpu.device: replace(a_gpu("AMD Instinct MI300X", (9, 4), 192), is_amd=True)},
    ),
    Row(
        "HG9: fp32 on an AMD GPU that no table has, which is no NVIDIA one by its capability",
        None,
        PRECISION,
        {**FP32, gpu.device: replace(a_gpu("AMD Radeon Next", (11, 0), 24), is_amd=True, multiprocessors=96)},
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
        {between.recompiles: 30, between.recompile_share: 0.4, step.step_time_cv: 0.8},
    ),
    Row("G07: out of memory at one sample, activations", "ckpt-every-n", {"zero-1-2", "grad-accum"}, OUT_OF_MEMORY),
    Row(
        "G07, attention written out",
        "ckpt-selective",
        MEMORY - {"ckpt-selective"},
        {
            **OUT_OF_MEMORY,
            attention.attention_is_flash: False,
            attention.attention_heads: 16,
            attention.hidden_size: 1024,
            attention.sequence_length: 1024,
            attention.scores_bytes: 10 * GB,
        },
    ),
    Row(
        "G08: retries, eight ranks, states",
        "zero-1-2",
        {"ckpt-every-n", "grad-accum", "zero-3-fsdp", "zero-overkill", "offload-states"},
        REPLICATED,
        memory=-15.75 * GB,
    ),
    Row(
        "G08, weights too large for stage 2",
        "zero-3-fsdp",
        {"zero-1-2", "zero-overkill", "offload-states"},
        TOO_LARGE_FOR_STAGE_2,
    ),
    Row("G08, nothing left to shard, recompute or round", "offload-states", MEMORY - {"offload-states"}, EXHAUSTED),
    Row(
        "G08, fragmented as well",
        "alloc-fragmentation",
        MEMORY - {"alloc-fragmentation"},
        {**EXHAUSTED, memory.fragmentation_ratio: 0.2},
    ),
    Row(
        "G08 under FSDP of a stage that is not known",
        None,
        MEMORY,
        {**EXHAUSTED, settings.flags: replace(FLAGS, fsdp=True, checkpointing=True)},
    ),
    Row(
        "G09: retries, fragmented",
        "alloc-fragmentation",
        (MEMORY - {"alloc-fragmentation"}) | {"offload-states"},
        FRAGMENTED,
    ),
    Row(
        "G10: fp32 gradients that the backward pass does not hide",
        "comm-compress-bf16",
        {"zero-3-fsdp", "zero-overkill", "ddp-no-sync", "straggler-rank"},
        REDUCING,
        phases=REDUCING_PHASES,
        speedup=(1.18, 1.44),
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
    Row(
        "G14: attention over 8192 tokens that writes its scores",
        "sdpa-flash",
        {"sparse-attention"},
        {
            attention.attention_share: 0.45,
            attention.materialized_attention_share: 0.45,
            attention.attention_is_flash: False,
            attention.sequence_length: 8192,
            attention.scores_bytes: 30 * GB,
        },
        speedup=(1 / (1 - 0.97 * 0.45 * (1 - 1 / 1.5)), 1 / (1 - 0.97 * 0.45 * 0.8)),
        memory=-30 * GB,
    ),
    Row(
        "attention over 8192 tokens in one kernel",
        None,
        {"sdpa-flash"},
        {attention.attention_share: 0.45, attention.sequence_length: 8192},
    ),
    Row(
        "G15: a vocabulary of 50257",
        "dims-align",
        {"precision-fp8"},
        {
            matmul.misaligned_length: 50257,
            matmul.misaligned_matmul_share: 0.25 / 0.97,
            matmul.misaligned_efficiency: 0.4,
            matmul.vocabulary: 50257,
        },
        speedup=(1 / (1 - 0.25 * (1 - 1 / 1.1)), 1 / (1 - 0.25 / 2)),
    ),
    Row("G16: fp16 whose scale fits no step", "fp16-scaler-thrash", {"batch-raise"}, SKIPPING),
    Row("HG1: large products on an H100", None, COMPILE | SHAPES, H100),
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
        "G18: 6 GB of states on eight GPUs, sharded as far as it goes",
        "zero-overkill",
        {"zero-1-2", "zero-3-fsdp", "offload-states"},
        STAGE_3,
        phases=WAITING_FOR_WEIGHTS,
        speedup=(1 / (1 - 0.06), 1 / (1 - 0.15)),
    ),
    Row(
        "one process for four GPUs",
        "ddp-not-dataparallel",
        {"zero-1-2"},
        {gpu.device: a_gpu(count=4), settings.flags: replace(FLAGS, data_parallel=True)},
    ),
    Row("HG2: fp16 with a stable scaler on a T4", None, PRECISION | SHAPES, T4),
    Row(
        "HG3: little headroom, but nothing fails and nothing more is wanted", None, MEMORY, {memory.mem_headroom: 0.04}
    ),
    Row(
        "HG3 on eight ranks that shard everything",
        None,
        MEMORY,
        {**EXHAUSTED, memory.alloc_retries: 0, memory.memory_pressure: False, memory.mem_headroom: 0.04},
    ),
    Row(
        "HG4: at the power cap, as a GPU that works hard is",
        None,
        {"gpu-throttled", "gpu-link-or-hw-fault"},
        {
            **HOT,
            hardware.throttle_reasons: ("software power cap",),
            hardware.thermal_throttle_share: 0.0,
            hardware.sm_clock_ratio: 0.93,
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
        {**FP32_A100, gpu.launch_bound_index: 0.6, hardware.sm_active: 0.85},
    ),
    Row(
        "G01 and C01: fp32, and starved",
        "data-workers-zero",
        {"precision-fp16-scaler", "precision-tf32"},
        {**FP32_A100, data.loader: replace(LOADER, num_workers=0), data.queue_empty_fraction: 1.0},
        phases={"data_wait": 0.4, "forward": 0.2, "backward": 0.34},
        then=("precision-bf16",),
    ),
    Row(
        "G04 and G11: hot, and waiting for the host",
        "gpu-throttled",
        DATA,
        {**HOT, gpu.gpu_busy_fraction: 0.77},
        phases=WAITING,
    ),
]


def above_information(judgment: Judgment) -> list[str]:
    """Return the ids of the rules with advice above information, in the order of the plan."""
    return [finding.rule.id for finding in judgment.findings if finding.severity is not Severity.INFO]
