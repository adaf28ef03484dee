from dataclasses import replace

from gpu_runs import FLAGS, GB, LOADER, MODEL, a_gpu, cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Missing
from advisor.metrics.gpu import device
from advisor.metrics.input import loader
from advisor.metrics.memory import (
    alloc_retries,
    mem_grads,
    mem_headroom,
    mem_optim,
    mem_params,
    mem_peak_allocated,
    memory_pressure,
    oom_count,
)
from advisor.metrics.settings import flags, model, world_size
from advisor.metrics.step import exposed_comm_fraction
from advisor.models.state import State
from advisor.rules.base import Intervention, Safety

SIX_BILLION = replace(
    MODEL, parameters=6 * GB, trainable=6 * GB, bytes=12 * GB, blocks=32, block_bytes=350_000_000, block="Block"
)


def short(**changes: object):
    """Return values of 6e9 parameters in 16 bits with 4 bytes each of optimizer state, on 8 ranks with 40 GB.

    ZeRO 1 has reduced them to 12 + 12 + 3 GB. Stage 2 would free 10.5 GB; stage 3 twice that, minus 1.6 for two
    gathered units of 0.8 GB, which is the part of the weights outside the blocks.
    """
    return {
        device: a_gpu("NVIDIA A100-SXM4-40GB", gb=40, count=8),
        world_size: 8,
        flags: replace(FLAGS, ddp=True, zero_stage=1),
        model: SIX_BILLION,
        loader: replace(LOADER, batch_size=1),
        mem_params: 12 * GB,
        mem_grads: 12 * GB,
        mem_optim: 3 * GB,
        mem_peak_allocated: 39 * GB,
        mem_headroom: 0.01,
        memory_pressure: True,
        oom_count: 1,
    }


def without_oom(headroom: float):
    """Return the same without an OOM: stage 2 frees 10.5 GB of 40, leaving 8 % free at a headroom of -0.1825."""
    return {**short(), oom_count: 0, alloc_retries: 3, mem_headroom: headroom}


CASES = [
    Fires(
        "stage 2 would leave too little memory for the failed allocation",
        gpu_metrics({**short(), exposed_comm_fraction: 0.1}, phases={"communication": 0.1, "forward": 0.22}),
        code=("fully_shard(block)", "fully_shard(model)", '"stage": 3', '"overlap_comm": true'),
        absent="reshard_after_forward=False",
        then="take 7.60 GB instead of 27.00",
        by_hand=True,
        memory=-round(19.4 * GB),
        state=State(phases={"forward": 0.03, "backward": 0.06, "communication": 0.01}),
        removed=(-0.1, -0.05, 0.0),
        fault=True,
    ),
    Fires(
        "exposed communication was not measured: no time is predicted",
        gpu_metrics({**short(), exposed_comm_fraction: Missing("No", "Yes.")}),
        no_gain=True,
    ),
    Fires("just above the limit", gpu_metrics(without_oom(-0.183)), note="ZeRO stage 2 would need 92%"),
    DoesNotFire("just below the limit: stage 2 fits", gpu_metrics(without_oom(-0.182))),
    Fires(
        "plain data parallel training",
        gpu_metrics({**short(), flags: replace(FLAGS, ddp=True), mem_optim: 24 * GB, mem_headroom: -0.7}),
        intervention=Intervention(name="fsdp2", settings={"block": "Block"}, safety=Safety.NUMERICS),
    ),
    Fires(
        "FSDP keeps weights until the end of the backward pass: between steps they are sharded",
        gpu_metrics(
            {
                **short(),
                flags: replace(FLAGS, fsdp=True, zero_stage=2),
                mem_params: round(1.5 * GB),
                mem_grads: round(1.5 * GB),
            }
        ),
        then="take 7.60 GB instead of 16.50",
        by_hand=True,
    ),
    Fires(
        "hybrid sharding in two groups of 8 ranks: each rank holds as much as with 8 ranks",
        gpu_metrics(
            {
                **short(),
                world_size: 16,
                model: replace(SIX_BILLION, data_parallel=16, shards=8),
                flags: replace(FLAGS, fsdp=True, zero_stage=2),
                mem_params: round(1.5 * GB),
                mem_grads: round(1.5 * GB),
            }
        ),
        then="over the 8 ranks of each group (ZeRO stage 3): a rank's part and two gathered blocks take 7.60 GB "
        "instead of 16.50",
        code="fully_shard(block, mesh=mesh)",
        by_hand=True,
        memory=-round(8.9 * GB),
    ),
    Fires(
        "sharding the states does not free enough memory",
        gpu_metrics({**short(), mem_headroom: -1.0}),
        then="Checkpointing or offloading must free the rest",
    ),
    DoesNotFire(
        "sharding the weights frees too little memory", gpu_metrics({**short(), mem_params: 2 * GB, mem_headroom: -1.0})
    ),
    DoesNotFire(
        "weights outside the blocks, such as embeddings, are always gathered",
        gpu_metrics({**short(), model: replace(SIX_BILLION, blocks=8)}),
    ),
    DoesNotFire("one rank", gpu_metrics({**short(), world_size: 1})),
    DoesNotFire("memory is not short", gpu_metrics({**short(), memory_pressure: False})),
    DoesNotFire("eight independent jobs", gpu_metrics({**short(), flags: FLAGS})),
    DoesNotFire("stage 3 already", gpu_metrics({**short(), flags: replace(FLAGS, fsdp=True, zero_stage=3)})),
    NotMeasured("FSDP with an unknown stage", gpu_metrics({**short(), flags: replace(FLAGS, fsdp=True)})),
    NotMeasured(
        "DeepSpeed with an unknown stage",
        gpu_metrics({**short(), flags: FLAGS, model: replace(SIX_BILLION, wrappers=("DeepSpeedEngine",))}),
    ),
    NotMeasured(
        "DeepSpeed, which hides the memory of the gradients",
        gpu_metrics({**short(), flags: replace(FLAGS, zero_stage=2), mem_grads: 0}),
    ),
    NotMeasured("no blocks to wrap", gpu_metrics({**short(), model: replace(SIX_BILLION, blocks=0, block=None)})),
    NotMeasured("no GPU allocator on CPU", cpu_metrics({world_size: 8}, phases={})),
]
