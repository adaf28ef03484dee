"""Metrics of a healthy run on a GPU, and the changes that give it a problem.

An A100 with 80 GB, 100 ms per step: bf16 under autocast, compiled, fused optimizer, a fifth of the memory free.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness import given

from advisor.metrics import attention, between, gpu, hardware, host, matmul, memory, settings, stack, step
from advisor.metrics import input as data
from advisor.metrics.base import Goals, Metric, Metrics, Missing
from profiler.schema import FlagsFact, LoaderFact, ModelFact, OptimizerFact, Place

GB = 10**9

PHASES = {"data_wait": 0.01, "h2d": 0.01, "forward": 0.32, "backward": 0.60, "optimizer": 0.03, "other": 0.03}
FRACTIONS = {
    "data_wait": step.data_wait_fraction,
    "loader_overhead": step.loader_overhead_fraction,
    "h2d": step.h2d_fraction,
    "forward": step.forward_fraction,
    "backward": step.backward_fraction,
    "optimizer": step.optimizer_fraction,
    "communication": step.exposed_comm_fraction,
    "sync": step.sync_fraction,
    "gc": step.gc_fraction,
    "other": step.other_fraction,
}

LOADER = LoaderFact(id=1, place=Place(file="train.py", line=12), batch_size=16, num_workers=4, pin_memory=True)
MODEL = ModelFact(
    id=1,
    name="Transformer",
    parameters=10**8,
    trainable=10**8,
    tensors=300,
    block="Block",
    blocks=32,
)
ADAM = OptimizerFact(
    id=1,
    place=Place(file="train.py", line=20),
    name="AdamW",
    module="torch.optim.adamw",
    tensors=300,
    parameters=10**8,
    fused=True,
    lr=3e-4,
    device="cuda:0",
)
FLAGS = FlagsFact(autocast=True, autocast_dtype="bfloat16", compile=True, matmul_precision="highest")


def a_gpu(
    name: str = "NVIDIA A100-SXM4-80GB", capability: tuple[int, int] = (8, 0), gb: float = 80, count: int = 1
) -> gpu.Device:
    return gpu.Device(name=name, capability=capability, memory_total=round(gb * GB), count=count)


def gpu_metrics(
    changes: Mapping[Metric[Any], object] | None = None,
    *,
    phases: Mapping[str, float] | None = None,
    time: float = 0.1,
    goals: Goals | None = None,
) -> Metrics:
    """Return the healthy run with these phases (shares; "other" gets the rest) and metrics instead of its own."""
    shares = {**PHASES, **(phases or {})}
    shares["other"] += 1 - sum(shares.values())
    values: dict[Metric[Any], object] = {
        step.steady_step_count: 60,
        step.step_time_mean: time,
        step.step_time_p50: time,
        step.step_time_p90: 1.02 * time,
        step.step_time_cv: 0.02,
        step.step_time_ci: (0.995 * time, 1.005 * time),
        step.step_time_uncertainty: 0.005,
        step.phase_seconds: {phase: share * time for phase, share in shares.items()},
        step.micro_steps_per_step: 1.0,
        step.batches_per_step: 1.0,
        step.sync_fraction: 0.0,
        between.recompiles: 0,
        between.recompile_share: 0.0,
        **{FRACTIONS[phase]: share for phase, share in shares.items()},
        data.loader: LOADER,
        data.queue_empty_fraction: 0.0,
        data.queue_depth: 8.0,
        data.worker_efficiency: 0.2,
        data.batch_time: 0.05,
        data.batch_time_p99: 0.06,
        data.step_time_without_wait: (1 - shares["data_wait"]) * time,
        data.worker_cpu_share: 0.5,
        data.collate_share: 0.1,
        data.files_per_sample: 1.0,
        data.compute_threads: 1.0,
        data.batch_bytes: 10**6,
        host.cores_allowed: 16.0,
        host.cores_available: 15,
        host.cores_per_rank: 16.0,
        host.cpu_saturation: 0.2,
        gpu.device: a_gpu(),
        gpu.gpu_busy_fraction: 0.97,
        gpu.launch_bound_index: 0.02,
        hardware.sm_active: 0.85,
        gpu.host_launch: 0.02,
        gpu.kernels_per_step: 1600.0,
        gpu.median_kernel_us: 60.0,
        gpu.matmul_share: 0.7,
        gpu.membound_share: 0.2,
        gpu.conv_share: 0.0,
        gpu.layout_share: 0.0,
        gpu.bf16_gemm_share: 0.7,
        gpu.bf16_gemm_us: 100.0,
        gpu.fp16_matmul_share: 0.0,
        gpu.compute_dtype_mix: {"bf16": 1.0},
        gpu.fp32_matmul_share: 0.0,
        gpu.simt_fp32_matmul_share: 0.0,
        gpu.simt_fp32_gemm_share: 0.0,
        gpu.achieved_matmul_flops: Missing("Shapes are not recorded", "Nothing yet."),
        hardware.sm_clock_ratio: 0.98,
        hardware.thermal_throttle_share: 0.0,
        hardware.throttle_reasons: (),
        hardware.pcie_ratio: 1.0,
        stack.stack_mismatches: (),
        gpu.h2d_pageable_share: 0.0,
        gpu.cross_entropy_share: 0.01,
        attention.attention_share: 0.1,
        attention.materialized_attention_share: 0.0,
        attention.attention_is_flash: True,
        attention.sequence_length: 2048,
        attention.scores_dropped_out: False,
        attention.scores_bytes: 0.0,
        matmul.misaligned_matmul_share: 0.0,
        matmul.vocabulary: 50304,
        matmul.logits: matmul.Logits(4096, 50304),
        matmul.logits_bytes: 6.0 * 4096 * 50304,
        matmul.head_share: 0.05,
        memory.mem_params: 4 * GB,
        memory.mem_grads: 4 * GB,
        memory.mem_optim: 8 * GB,
        memory.mem_activations: 46 * GB,
        memory.mem_peak_allocated: 62 * GB,
        memory.mem_peak_reserved: 63 * GB,
        memory.mem_nontorch: 1 * GB,
        memory.fragmentation_ratio: 0.02,
        memory.mem_headroom: 0.20,
        memory.alloc_retries: 0,
        memory.oom_count: 0,
        memory.memory_pressure: False,
        settings.model: MODEL,
        settings.optimizer: ADAM,
        settings.optimizers: (ADAM,),
        settings.flags: FLAGS,
        settings.world_size: 1,
        **(changes or {}),
    }
    return given(values, goals)


NO_GPU = Missing("No GPU was seen", "Run on a machine with a GPU.")


def cpu_metrics(changes: Mapping[Metric[Any], object] | None = None, *, phases: Mapping[str, float]) -> Metrics:
    """Return a run on a CPU, in which nothing about a GPU was measured."""
    unseen = {one: NO_GPU for module in (gpu, memory) for one in vars(module).values() if isinstance(one, Metric)}
    return gpu_metrics({**unseen, step.h2d_fraction: NO_GPU, **(changes or {})}, phases={"h2d": 0.0, **phases})
