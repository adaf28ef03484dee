from dataclasses import replace

from gpu_runs import FLAGS, GB, MODEL, cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Missing
from advisor.metrics.host import host_memory_available, local_ranks
from advisor.metrics.memory import mem_activations, mem_headroom, mem_peak_allocated, memory_pressure
from advisor.metrics.settings import flags, model
from advisor.models.state import State

# 32 blocks keep an input of 1 GB each, and one of them 17 times as much: 49 GB.
FULL = {
    flags: replace(FLAGS, checkpointing=True),
    model: replace(MODEL, blocks=32),
    mem_activations: 49 * GB,
    mem_peak_allocated: 78 * GB,
    mem_headroom: 0.01,
    memory_pressure: True,
    host_memory_available: 200 * GB,
    local_ranks: 4,
}
PHASES = {"forward": 0.3, "backward": 0.7}

CASES = [
    Fires(
        "30 inputs of 1 GB each, in a step of 10 s",
        gpu_metrics(FULL, phases=PHASES, time=10.0),
        code=("save_on_cpu(pin_memory=True)", "activation_offloading=True"),
        then="frees about 27.9 GiB of GPU memory, takes 112 GiB of the node's memory and makes a step up to 2.4 s "
        "longer",
        note="the inputs of 32 Block blocks",
        memory=-30 * GB,
        host_memory=120 * GB,
        state=State(phases={"forward": 3.0, "backward": 7.0}),
        removed=(-0.24, -0.12, 0.0),
        fault=True,
        by_hand=True,
    ),
    Fires(
        "copies take too long to overlap with the forward and backward passes",
        gpu_metrics(FULL, phases=PHASES, time=1.0),
        state=State(phases={"forward": 0.3, "backward": 0.7}),
        removed=(-2.4, -1.4, -1.4),
    ),
    Fires("just above the limit", gpu_metrics({**FULL, mem_peak_allocated: 119 * GB})),
    DoesNotFire("just below the limit", gpu_metrics({**FULL, mem_peak_allocated: 121 * GB})),
    Fires("just enough host memory", gpu_metrics({**FULL, host_memory_available: 121 * GB})),
    DoesNotFire("too little host memory", gpu_metrics({**FULL, host_memory_available: 119 * GB})),
    DoesNotFire("nothing is checkpointed yet", gpu_metrics({**FULL, flags: FLAGS})),
    DoesNotFire("memory is not short", gpu_metrics({**FULL, memory_pressure: False})),
    NotMeasured("no equal blocks", gpu_metrics({**FULL, model: replace(MODEL, blocks=0, block=None)})),
    NotMeasured("memory was not measured", gpu_metrics({**FULL, mem_activations: Missing("No", "Yes.")})),
    NotMeasured("no GPU", cpu_metrics(phases={})),
]
