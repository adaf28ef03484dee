from dataclasses import replace

from gpu_runs import FLAGS, a_gpu, cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Goals, Missing
from advisor.metrics.communication import straggler_wait
from advisor.metrics.gpu import device, gpu_busy_fraction
from advisor.metrics.memory import mem_headroom, memory_pressure
from advisor.metrics.settings import flags, world_size
from advisor.metrics.step import exposed_comm_fraction

WAITING = {"forward": 0.16, "backward": 0.34, "communication": 0.4}


def scaled(exposed: float = 0.4):
    """Return values of 8 GPUs. On four, T1/T0 = 2 x 0.6 + 0.4 x (3/4) / (7/8) = 1.543; in GPU-hours, half of that."""
    return {
        device: a_gpu(count=8),
        world_size: 8,
        flags: replace(FLAGS, ddp=True),
        exposed_comm_fraction: exposed,
    }


IDLE = {gpu_busy_fraction: 0.4, mem_headroom: 0.7}

CASES = [
    Fires(
        "exposed communication takes 40 % of the step",
        gpu_metrics(scaled(), phases=WAITING),
        code="--nproc-per-node=4",
        then="on 4 GPUs, each with twice as many samples per update, by accumulating gradients, instead of on 8: the "
        "same updates, 23% fewer GPU-hours, 154 ms a step",
        no_gain=True,
        cost=(0.2, 0.229, 0.4),
        fault=False,
    ),
    Fires(
        "two GPUs: on one GPU there is no communication",
        gpu_metrics({**scaled(), world_size: 2}),
        then="on one GPU with twice as many samples",
        cost=(0.4, 0.4, 0.4),
    ),
    Fires(
        "an odd number of GPUs: two GPUs take the samples of five",
        gpu_metrics({**scaled(), world_size: 5}),
        then="on 2 GPUs, each with 2.5 times as many samples per update",
        code="2.5 times the samples per GPU and update",
    ),
    Fires("just above the limit", gpu_metrics(scaled(0.31))),
    DoesNotFire("just below the limit", gpu_metrics(scaled(0.29))),
    DoesNotFire(
        "too much of the exposed communication is waiting for a slow rank",
        gpu_metrics({**scaled(), straggler_wait: 0.011}),
    ),
    DoesNotFire("eight independent jobs", gpu_metrics({**scaled(), flags: FLAGS})),
    DoesNotFire("memory is short", gpu_metrics({**scaled(), memory_pressure: True})),
    DoesNotFire("the goal is a larger model or batch", gpu_metrics(scaled(), goals=Goals(capacity=True))),
    Fires(
        "sharded, and half of the GPUs have enough memory",
        gpu_metrics({**scaled(), flags: replace(FLAGS, fsdp=True), mem_headroom: 0.281}),
    ),
    DoesNotFire(
        "sharded, and half of the GPUs have too little memory: each would need 16 of 80 GB more",
        gpu_metrics({**scaled(), flags: replace(FLAGS, fsdp=True), mem_headroom: 0.279}),
    ),
    Fires(
        "a GPU that is idle most of the time, with most of its memory free",
        gpu_metrics(IDLE),
        code="mig",
        then="busy for 40% of the time, and 30% of its memory",
        no_gain=True,
    ),
    DoesNotFire(
        "idle most of the time, but more than half of the memory is used", gpu_metrics({**IDLE, mem_headroom: 0.49})
    ),
    DoesNotFire(
        "most of the memory is free, but the GPU is busy more than half of the time",
        gpu_metrics({**IDLE, gpu_busy_fraction: 0.51}),
    ),
    DoesNotFire("idle because it waits for data", gpu_metrics(IDLE, phases={"data_wait": 0.3, "backward": 0.31})),
    NotMeasured(
        "exposed communication was not measured",
        gpu_metrics({**scaled(), exposed_comm_fraction: Missing("No", "Yes.")}),
    ),
    NotMeasured("no kernels were recorded", gpu_metrics({**IDLE, gpu_busy_fraction: Missing("No", "Yes.")})),
    NotMeasured("no GPU", cpu_metrics(phases={})),
]
