from dataclasses import replace

from gpu_runs import ADAM, FLAGS, GB, MODEL, a_gpu, cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Goals, Metric, Missing
from advisor.metrics.communication import straggler_wait
from advisor.metrics.gpu import device
from advisor.metrics.memory import mem_grads, mem_headroom, mem_optim, mem_params, memory_pressure
from advisor.metrics.settings import flags, model, optimizer, world_size
from advisor.metrics.step import exposed_comm_fraction
from advisor.models.state import State

BUSY = {"forward": 0.2, "backward": 0.42, "communication": 0.3}


def sharded(changes: dict[Metric, object] | None = None, *, phases=BUSY, goals: Goals | None = None):
    """Return metrics of full states of 6 GB, 1.5 of them weights, on 8 ranks under stage 3; a fifth of 80 GB free."""
    return gpu_metrics(
        {
            device: a_gpu(count=8),
            world_size: 8,
            flags: replace(FLAGS, fsdp=True, zero_stage=3),
            mem_params: round(1.5 * GB / 8),
            mem_grads: round(1.5 * GB / 8),
            mem_optim: round(3 * GB / 8),
            **(changes or {}),
        },
        phases=phases,
        goals=goals,
    )


def on_the_host(changes: dict[Metric, object] | None = None, **phases: float):
    """Return metrics of 1e9 parameters updated by Adam on the host: 8 GB of state there, 8 of weights and gradients."""
    fact = replace(ADAM, device="cpu", parameters=GB, state_bytes=8 * GB)
    shares = {"forward": 0.2, "backward": 0.32, "optimizer": 0.4, **phases}
    return gpu_metrics({optimizer: fact, mem_headroom: 0.40, **(changes or {})}, phases=shares)


CASES = [
    Fires(
        "G18: the weights are gathered twice unnecessarily",
        sharded(),
        code=("reshard_after_forward=False", '"stage": 2', "SHARD_GRAD_OP"),
        then="82% of GPU memory instead of 80%",
        memory=round(1.5 * GB * 7 / 8),
        state=State(phases={"forward": 0.025, "backward": 0.045, "communication": 0.03}),
        removed=(0.06, 0.099, 0.15),
        fault=False,
    ),
    Fires(
        "hybrid sharding in two groups of 8 ranks: each rank holds as much as with 8 ranks",
        sharded({world_size: 16, model: replace(MODEL, data_parallel=16, shards=8)}),
        code=("fully_shard(block, mesh=mesh, reshard_after_forward=False)",),
        then="82% of GPU memory instead of 80%",
        memory=round(1.5 * GB * 7 / 8),
    ),
    Fires("just above the limit", sharded({exposed_comm_fraction: 0.051})),
    DoesNotFire("just below the limit", sharded({exposed_comm_fraction: 0.049})),
    DoesNotFire(
        "without waiting for a slow rank, communication takes 4 % of the step", sharded({straggler_wait: 0.026})
    ),
    Fires("just enough memory", sharded({mem_headroom: 0.167})),
    DoesNotFire("just too little memory", sharded({mem_headroom: 0.166})),
    DoesNotFire("the goal is a larger model or batch", sharded(goals=Goals(capacity=True))),
    DoesNotFire("a target batch size is declared", sharded(goals=Goals(target_batch=64))),
    DoesNotFire("memory is short already", sharded({memory_pressure: True})),
    DoesNotFire("stage 2", sharded({flags: replace(FLAGS, fsdp=True, zero_stage=2)})),
    DoesNotFire("plain data parallel training", sharded({flags: replace(FLAGS, ddp=True)})),
    DoesNotFire("one rank", sharded({world_size: 1})),
    NotMeasured("FSDP with an unknown stage", sharded({flags: replace(FLAGS, fsdp=True)})),
    NotMeasured(
        "DeepSpeed with an unknown stage",
        sharded({flags: FLAGS, model: replace(MODEL, wrappers=("DeepSpeedEngine",))}),
    ),
    NotMeasured("DeepSpeed, which hides the memory of the weights", sharded({mem_params: 0})),
    NotMeasured(
        "DeepSpeed, which does not shard small weights",
        sharded({flags: replace(FLAGS, zero_stage=3), model: replace(MODEL, wrappers=("DeepSpeedEngine",))}),
    ),
    NotMeasured("exposed communication was not measured", sharded({exposed_comm_fraction: Missing("No", "Yes.")})),
    Fires(
        "the update on the host takes most of the step, and would fit on the GPU",
        on_the_host(),
        code=("offload_optimizer", "CPUOffloadPolicy"),
        memory=16 * GB,
        state=State(phases={"forward": 0.2, "backward": 0.4, "optimizer": 0.4}),
        removed=(0.28, 0.36, 0.4),
    ),
    DoesNotFire("the update would not fit on the GPU", on_the_host({mem_headroom: 0.34})),
    DoesNotFire("a fast update on the host", on_the_host(optimizer=0.04)),
    DoesNotFire(
        "weights trained on the host, with a model on the GPU",
        on_the_host({model: replace(MODEL, devices={"cpu": GB, "cuda:0": GB})}),
    ),
    Fires(
        "FSDP fetches its weights from the host",
        on_the_host({model: replace(MODEL, devices={"cpu": GB}), flags: replace(FLAGS, fsdp=True), world_size: 8}),
    ),
    NotMeasured("no GPU", cpu_metrics(phases={})),
]
