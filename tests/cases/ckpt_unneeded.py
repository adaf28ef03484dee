from dataclasses import replace

from gpu_runs import FLAGS, GB, MODEL, cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Goals, Missing
from advisor.metrics.memory import mem_activations, mem_headroom, memory_pressure
from advisor.metrics.settings import flags, model
from advisor.metrics.step import backward_fraction
from advisor.models.state import State

# The backward pass takes three times as long as the forward pass.
TIMES = {"forward": 0.22, "backward": 0.66}


def recomputing(headroom: float = 0.55):
    """Return values of 80 GB: 32 blocks keep 32 c + 17 c = 2.45 GB: c is 50 MB; all is 27.2 GB, 24.75 more (31 %)."""
    return {
        flags: replace(FLAGS, checkpointing=True),
        model: replace(MODEL, blocks=32),
        mem_activations: round(2.45 * GB),
        mem_headroom: headroom,
    }


CASES = [
    Fires(
        "half of the GPU memory is free",
        gpu_metrics(recomputing(), phases=TIMES),
        code="gradient_checkpointing_disable()",
        then="22% of the step",
        note="at most 76%",
        memory=round(24.75 * GB),
        state=State(phases={"forward": 0.22, "backward": 0.66, "other": 0.12}),
        removed=(0.7 * 0.22, 0.9 * 0.22, 0.22),
        fault=False,
    ),
    Fires(
        "the times imply that half of the blocks are checkpointed",
        gpu_metrics(recomputing(), phases={"forward": 0.24, "backward": 0.6}),
        state=State(phases={"forward": 0.24, "backward": 0.6, "other": 0.16}),
        removed=(0.7 * 0.12, 0.9 * 0.12, 0.12),
    ),
    Fires("just enough free memory", gpu_metrics(recomputing(0.435), phases=TIMES), note="at most 87%"),
    DoesNotFire("just too little free memory", gpu_metrics(recomputing(0.425), phases=TIMES)),
    Fires(
        "recomputation just above the time limit",
        gpu_metrics(recomputing(), phases={"forward": 0.26, "backward": 0.571}),
    ),
    DoesNotFire(
        "recomputation just below the time limit",
        gpu_metrics(recomputing(), phases={"forward": 0.26, "backward": 0.569}),
    ),
    DoesNotFire("nothing is checkpointed", gpu_metrics({**recomputing(), flags: FLAGS}, phases=TIMES)),
    DoesNotFire("memory is short", gpu_metrics({**recomputing(), memory_pressure: True}, phases=TIMES)),
    DoesNotFire(
        "the goal is a larger model or batch", gpu_metrics(recomputing(), phases=TIMES, goals=Goals(capacity=True))
    ),
    DoesNotFire(
        "a target batch size is declared", gpu_metrics(recomputing(), phases=TIMES, goals=Goals(target_batch=64))
    ),
    NotMeasured("no equal blocks", gpu_metrics({**recomputing(), model: replace(MODEL, blocks=0)}, phases=TIMES)),
    NotMeasured(
        "activations were not measured",
        gpu_metrics({**recomputing(), mem_activations: Missing("No", "Yes.")}, phases=TIMES),
    ),
    NotMeasured(
        "the backward pass was not timed", gpu_metrics({**recomputing(), backward_fraction: Missing("No", "Yes.")})
    ),
    NotMeasured("no GPU", cpu_metrics({flags: replace(FLAGS, checkpointing=True)}, phases=TIMES)),
]
