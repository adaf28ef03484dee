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
        "half the multiprocessors idle, memory for three times the batch",
        gpu_metrics(roomy()),
        code=("batch_size=48", "lr=0.00052", "square root"),
        then="from 16 to 48",
        memory=40 * GB,
        state=IDLE,
        removed=(0.1 * 2 / 3, (0.1 + 0.25 * 0.9) * 2 / 3, (0.1 + 0.5 * 0.9) * 2 / 3),
        fault=False,
    ),
    Fires(
        "the learning rate of SGD grows with the batch",
        gpu_metrics({**roomy(), optimizer: replace(ADAM, name="SGD", lr=0.1)}),
        code="torch.optim.SGD(..., lr=0.3)",
    ),
    Fires("not more than is wanted", gpu_metrics(roomy(), goals=Goals(target_batch=32)), code="batch_size=32"),
    Fires(
        "not more than four times at once",
        gpu_metrics({**roomy(), mem_activations: GB, loader: replace(LOADER, batch_size=8)}),
        code="batch_size=32",
    ),
    Fires(
        "launching is the limit, multiprocessors unknown",
        gpu_metrics({**roomy(late=0.2), sm_active: Missing("No", "Yes.")}),
    ),
    Fires(
        "before Hopper no counter tells of multiprocessors: kernels reach half of them",
        gpu_metrics({**roomy(), sm_active: Missing("No", "Yes."), reached_multiprocessors: 0.5}),
        state=IDLE,
        removed=(0.1 * 2 / 3, (0.1 + 0.25 * 0.9) * 2 / 3, (0.1 + 0.5 * 0.9) * 2 / 3),
    ),
    DoesNotFire(
        "before Hopper, kernels reach nearly all multiprocessors",
        gpu_metrics({**roomy(), sm_active: Missing("No", "Yes."), reached_multiprocessors: 0.8}),
    ),
    DoesNotFire(
        "a counter counts for more than what kernels reach",
        gpu_metrics({**roomy(active=0.9), reached_multiprocessors: 0.5}),
    ),
    Fires("just above the limit", gpu_metrics(roomy(headroom=0.26))),
    DoesNotFire("just below the limit", gpu_metrics(roomy(headroom=0.24))),
    Fires("multiprocessors just idle enough", gpu_metrics(roomy(active=0.79))),
    DoesNotFire("multiprocessors just busy enough", gpu_metrics(roomy(active=0.8, late=0.19))),
    DoesNotFire("multiprocessors idle because data is waited for", gpu_metrics({**roomy(), data_wait_fraction: 0.45})),
    DoesNotFire("as much as is wanted", gpu_metrics(roomy(), goals=Goals(target_batch=16))),
    NotMeasured(
        "multiprocessors unknown, launching is not the limit",
        gpu_metrics({**roomy(), sm_active: Missing("No", "Yes.")}),
    ),
    NotMeasured("the size of a batch is unknown", gpu_metrics({**roomy(), loader: replace(LOADER, batch_size=None)})),
    NotMeasured("no GPU", cpu_metrics(phases={})),
]
