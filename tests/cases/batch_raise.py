from dataclasses import replace

from gpu_runs import ADAM, GB, LOADER, a_gpu, cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Goals, Missing
from advisor.metrics.gpu import device, launch_bound_index, reached_multiprocessors
from advisor.metrics.hardware import sm_active
from advisor.metrics.input import loader
from advisor.metrics.memory import mem_activations, mem_headroom
from advisor.metrics.settings import optimizer
from advisor.metrics.step import data_wait_fraction
from advisor.models.state import State


def roomy(headroom: float = 48 / 79, active: float = 0.5, late: float = 0.02):
    """Return values of a 79 GB GPU with 11 GB fixed and 1.25 GB per sample: 49 samples fit."""
    return {
        device: a_gpu(gb=79),
        mem_headroom: headroom,
        mem_activations: 20 * GB,
        sm_active: active,
        launch_bound_index: late,
    }


IDLE = State(phases={"forward": 0.03, "backward": 0.06, "optimizer": 0.01})

CASES = [
    Fires(
        "half of the multiprocessors are idle, and memory has room for three times the batch",
        gpu_metrics(roomy()),
        code=("batch_size=48", "lr=0.00052", "square root"),
        then="from 16 to 48",
        memory=40 * GB,
        state=IDLE,
        removed=(0.1 * 2 / 3, (0.1 + 0.25 * 0.9) * 2 / 3, (0.1 + 0.5 * 0.9) * 2 / 3),
        fault=False,
    ),
    Fires(
        "with SGD, the learning rate is scaled with the batch size",
        gpu_metrics({**roomy(), optimizer: replace(ADAM, name="SGD", lr=0.1)}),
        code="torch.optim.SGD(..., lr=0.3)",
    ),
    Fires(
        "no larger than the target batch size", gpu_metrics(roomy(), goals=Goals(target_batch=32)), code="batch_size=32"
    ),
    Fires(
        "no more than four times the batch size",
        gpu_metrics({**roomy(), mem_activations: GB, loader: replace(LOADER, batch_size=8)}),
        code="batch_size=32",
    ),
    Fires(
        "launch-bound, multiprocessor activity unknown",
        gpu_metrics({**roomy(late=0.2), sm_active: Missing("No", "Yes.")}),
    ),
    Fires(
        "no multiprocessor counter (before Hopper): kernels have blocks for half of the multiprocessors",
        gpu_metrics({**roomy(), sm_active: Missing("No", "Yes."), reached_multiprocessors: 0.5}),
        state=IDLE,
        removed=(0.1 * 2 / 3, (0.1 + 0.25 * 0.9) * 2 / 3, (0.1 + 0.5 * 0.9) * 2 / 3),
    ),
    DoesNotFire(
        "no multiprocessor counter (before Hopper): kernels have blocks for 80 % of the multiprocessors",
        gpu_metrics({**roomy(), sm_active: Missing("No", "Yes."), reached_multiprocessors: 0.8}),
    ),
    DoesNotFire(
        "the multiprocessor counter takes precedence over the share that kernels have blocks for",
        gpu_metrics({**roomy(active=0.9), reached_multiprocessors: 0.5}),
    ),
    Fires("just above the limit", gpu_metrics(roomy(headroom=0.26))),
    DoesNotFire("just below the limit", gpu_metrics(roomy(headroom=0.24))),
    Fires("multiprocessor activity just below the limit", gpu_metrics(roomy(active=0.79))),
    DoesNotFire("multiprocessor activity just at the limit", gpu_metrics(roomy(active=0.8, late=0.19))),
    DoesNotFire(
        "multiprocessors are idle because the step waits for data", gpu_metrics({**roomy(), data_wait_fraction: 0.45})
    ),
    DoesNotFire("the batch already has the target size", gpu_metrics(roomy(), goals=Goals(target_batch=16))),
    NotMeasured(
        "multiprocessor activity unknown, not launch-bound",
        gpu_metrics({**roomy(), sm_active: Missing("No", "Yes.")}),
    ),
    NotMeasured("the batch size is unknown", gpu_metrics({**roomy(), loader: replace(LOADER, batch_size=None)})),
    NotMeasured("no GPU", cpu_metrics(phases={})),
]
