from dataclasses import replace

from gpu_runs import FLAGS, LOADER, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Goals, Missing
from advisor.metrics.input import loader
from advisor.metrics.settings import flags, world_size
from advisor.metrics.step import exposed_comm_fraction, micro_steps_per_step, optimizer_fraction
from advisor.models.state import State

WANTED = Goals(target_batch=64)
DDP = {world_size: 8, flags: replace(FLAGS, ddp=True)}


def one(optimizer: float, goals: Goals = WANTED):
    return gpu_metrics(phases={"optimizer": optimizer, "backward": 0.4}, goals=goals)


def many(communication: float):
    return gpu_metrics({**DDP, exposed_comm_fraction: communication}, goals=Goals(target_batch=8 * 64))


CASES = [
    Fires(
        "a slow optimizer; the target is four times the batch",
        one(0.4),
        code=("accumulate = 4", "loss.backward()"),
        absent="no_sync",
        then="4 micro-batches of 16",
        state=State(phases={"forward": 0.2, "backward": 0.4, "optimizer": 0.4}),
        removed=(0.3, 0.3, 0.3),
        fault=False,
    ),
    Fires(
        "exposed communication in the backward pass",
        many(0.33),
        code=("accumulate = 4", "model.no_sync()"),
        note="36% of the step",
        state=State(phases={"forward": 0.032, "backward": 0.060, "optimizer": 0.003, "other": 0.005}),
        removed=(0.27, 0.27, 0.27),
    ),
    Fires(
        "two micro-batches already: twice as many are advised",
        gpu_metrics({micro_steps_per_step: 2.0, optimizer_fraction: 0.2}, goals=WANTED),
        code="accumulate = 4",
        then="2 times as many",
    ),
    Fires("just above the limit", one(0.151)),
    DoesNotFire("just below the limit", one(0.149)),
    DoesNotFire("communication just below the limit", many(0.119)),
    Fires("communication just above the limit", many(0.121)),
    DoesNotFire(
        "the target batch size counts the samples of all eight ranks",
        gpu_metrics({**DDP, exposed_comm_fraction: 0.33}, goals=WANTED),
    ),
    DoesNotFire("no target batch size", one(0.4, Goals())),
    DoesNotFire("the batch already has the target size", one(0.4, Goals(target_batch=16))),
    NotMeasured("the batch size is unknown", gpu_metrics({loader: replace(LOADER, batch_size=None)}, goals=WANTED)),
    NotMeasured(
        "communication was not measured",
        gpu_metrics({**DDP, exposed_comm_fraction: Missing("No", "Yes.")}, goals=Goals(target_batch=8 * 64)),
    ),
    NotMeasured(
        "the optimizer was not timed",
        gpu_metrics({optimizer_fraction: Missing("No", "Yes.")}, goals=WANTED),
    ),
]
