from dataclasses import replace

from gpu_runs import FLAGS, GB, LOADER, MODEL, a_gpu, cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Missing
from advisor.metrics.gpu import device
from advisor.metrics.input import loader
from advisor.metrics.memory import (
    alloc_retries,
    mem_activations,
    mem_grads,
    mem_headroom,
    mem_optim,
    mem_peak_allocated,
    memory_pressure,
    oom_count,
)
from advisor.metrics.settings import flags, model, world_size
from advisor.models.state import State
from advisor.rules.base import Intervention, Safety


def full(**changes: object):
    """Return values of a full 24 GB GPU with 18.25 GB of activations in 32 blocks; without an OOM, 4 GB are needed."""
    return {
        device: a_gpu("NVIDIA A10", (8, 6), 24),
        loader: replace(LOADER, batch_size=1),
        mem_headroom: -0.087,
        mem_activations: round(32 * 570.4e6),
        mem_peak_allocated: 24 * GB,
        mem_grads: 2 * GB,
        mem_optim: 2 * GB,
        alloc_retries: 3,
        memory_pressure: True,
    }


CASES = [
    Fires(
        "activations fill the memory: checkpointing every third block frees the 4 GB",
        gpu_metrics(full()),
        code=("apply_activation_checkpointing", "__name__ == 'Block'", "blocks[::3]"),
        then="every 3rd of the 32 Block blocks",
        memory=-round(32 * (570.4 - 570.4 / 17) / 3 * 1e6 - 570.4e6),
        state=State(phases={"forward": 0.3, "backward": 0.6, "optimizer": 0.1}),
        removed=(-0.12, -0.10, -0.09),
        intervention=Intervention(name="checkpointing", settings={"block": "Block", "every": 3}, safety=Safety.MEMORY),
        fault=True,
    ),
    Fires(
        "out of memory: the peak excludes the failed allocation, so more must be freed",
        gpu_metrics({**full(), oom_count: 1}),
        code="in blocks)",
        then="each of the 32",
    ),
    Fires(
        "recomputation pays off if most of a step's time does not depend on the batch size",
        gpu_metrics(
            {**full(), loader: replace(LOADER, batch_size=8), oom_count: 1},
            phases={"forward": 0.05, "backward": 0.1, "optimizer": 0.8},
        ),
        then="more samples a second",
    ),
    Fires("just above the limit", gpu_metrics({**full(), mem_peak_allocated: 45 * GB}), then="does not make it faster"),
    DoesNotFire("just below the limit", gpu_metrics({**full(), mem_peak_allocated: 46 * GB})),
    DoesNotFire("memory is not short", gpu_metrics({**full(), memory_pressure: False})),
    DoesNotFire("checkpointed already", gpu_metrics({**full(), flags: replace(FLAGS, checkpointing=True)})),
    DoesNotFire(
        "model states that could be sharded take more memory than activations",
        gpu_metrics({**full(), world_size: 8, mem_optim: 20 * GB}),
    ),
    Fires("model states that cannot be sharded are ignored", gpu_metrics({**full(), mem_optim: 20 * GB})),
    NotMeasured("no blocks to wrap", gpu_metrics({**full(), model: replace(MODEL, blocks=0, block=None)})),
    NotMeasured("activations were not measured", gpu_metrics({**full(), mem_activations: Missing("No", "Yes.")})),
    NotMeasured("no GPU", cpu_metrics(phases={})),
]
