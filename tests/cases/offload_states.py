from dataclasses import replace

from gpu_runs import ADAM, FLAGS, GB, LOADER, MODEL, a_gpu, cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Missing
from advisor.metrics.gpu import device
from advisor.metrics.host import host_memory_available, local_ranks
from advisor.metrics.input import loader
from advisor.metrics.memory import (
    mem_activations,
    mem_grads,
    mem_headroom,
    mem_optim,
    mem_params,
    mem_peak_allocated,
    memory_pressure,
    oom_count,
)
from advisor.metrics.settings import flags, model, optimizer, world_size
from advisor.models.state import State

EIGHT_BITS = replace(ADAM, name="AdamW8bit", module="bitsandbytes.optim.adamw")


def full():
    """Return values of 1.5e9 parameters on one GPU: batches of one, checkpointed, 8-bit moments, and still too much."""
    return {
        device: a_gpu("NVIDIA A10", (8, 6), 24),
        loader: replace(LOADER, batch_size=1),
        flags: replace(FLAGS, checkpointing=True),
        model: replace(MODEL, parameters=1_500_000_000, trainable=1_500_000_000, bytes=6 * GB),
        optimizer: EIGHT_BITS,
        mem_params: 6 * GB,
        mem_grads: 6 * GB,
        mem_optim: 3 * GB,
        mem_activations: 8 * GB,
        mem_peak_allocated: 23 * GB,
        mem_headroom: 0.01,
        memory_pressure: True,
        oom_count: 1,
        host_memory_available: 64 * GB,
        local_ranks: 1,
    }


def sharded():
    """Return values of the same number of parameters on each of 8 ranks of a node, everything sharded."""
    return {
        **full(),
        world_size: 8,
        local_ranks: 8,
        flags: replace(FLAGS, fsdp=True, zero_stage=3, checkpointing=True),
        model: replace(MODEL, parameters=12 * GB, trainable=12 * GB, bytes=48 * GB),
        host_memory_available: 256 * GB,
    }


CASES = [
    Fires(
        "no other way to free memory: t_off is 4 psi / 25 GB/s + 28 psi / 80 GB/s = 0.24 + 0.525 s",
        gpu_metrics(full()),
        code=('"offload_optimizer"', '"stage": 2', "CPUOffloadPolicy()"),
        then="a step up to 765 ms longer",
        memory=-9 * GB,
        host_memory=27 * GB,
        state=State(phases={"forward": 0.3, "backward": 0.06, "optimizer": 0.1}),
        removed=(-0.765 / 0.46, -0.705 / 0.46, -0.705 / 0.46),
        fault=True,
    ),
    Fires(
        "everything sharded already: eight ranks share the node's memory",
        gpu_metrics(sharded()),
        code='"stage": 3',
        host_memory=216 * GB,
    ),
    Fires("just above the limit", gpu_metrics({**full(), mem_peak_allocated: 35.9 * GB})),
    DoesNotFire("just below the limit", gpu_metrics({**full(), mem_peak_allocated: 36.1 * GB})),
    Fires("just enough host memory", gpu_metrics({**full(), host_memory_available: 27 * GB})),
    DoesNotFire("just too little host memory", gpu_metrics({**full(), host_memory_available: 26.9 * GB})),
    DoesNotFire("memory is not short", gpu_metrics({**full(), memory_pressure: False})),
    DoesNotFire(
        "the ranks could shard the states",
        gpu_metrics({**sharded(), flags: replace(FLAGS, ddp=True, checkpointing=True)}),
    ),
    DoesNotFire("eight independent jobs", gpu_metrics({**sharded(), flags: replace(FLAGS, checkpointing=True)})),
    DoesNotFire(
        "optimizer state is on the host already", gpu_metrics({**full(), optimizer: replace(EIGHT_BITS, device="cpu")})
    ),
    NotMeasured("FSDP with an unknown stage", gpu_metrics({**sharded(), flags: replace(FLAGS, fsdp=True)})),
    NotMeasured("DeepSpeed, which hides the memory of the weights", gpu_metrics({**full(), mem_params: 0})),
    NotMeasured("the batch size is unknown", gpu_metrics({**full(), loader: replace(LOADER, batch_size=None)})),
    NotMeasured("host memory was not sampled", gpu_metrics({**full(), host_memory_available: Missing("No", "Yes.")})),
    NotMeasured("no GPU", cpu_metrics(phases={})),
]
