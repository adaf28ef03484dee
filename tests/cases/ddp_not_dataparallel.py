from dataclasses import replace

from gpu_runs import FLAGS, a_gpu, cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Missing
from advisor.metrics.gpu import device
from advisor.metrics.input import loader
from advisor.metrics.settings import flags, world_size
from advisor.models.state import State

WRAPPED = replace(FLAGS, data_parallel=True)


def wrapped(gpus: int = 4):
    return {device: a_gpu(count=gpus), flags: WRAPPED}


CASES = [
    Fires(
        "one process for four GPUs",
        gpu_metrics(wrapped()),
        code=("--nproc-per-node=4", "DistributedDataParallel(", "batch_size=4, sampler", "batch_size was 16"),
        note="4 GPUs",
        state=State(phases={"h2d": 0.1, "forward": 0.3, "backward": 0.6}, launch=0.9),
        removed=(0.9 * (1 - 1 / 1.1), 0.9 * (1 - 1 / 1.4), 0.45),
        fault=False,
    ),
    Fires("two GPUs", gpu_metrics(wrapped(2))),
    Fires(
        "batches without a DataLoader",
        gpu_metrics({**wrapped(), loader: Missing("No loader", "Use one.")}),
        code="DistributedSampler",
        absent="batch_size",
    ),
    DoesNotFire("one GPU", gpu_metrics(wrapped(1))),
    DoesNotFire("no DataParallel", gpu_metrics({device: a_gpu(count=4)})),
    DoesNotFire("one process per GPU already", gpu_metrics({**wrapped(), world_size: 4})),
    NotMeasured("the settings were not read", gpu_metrics({**wrapped(), flags: Missing("No", "Yes.")})),
    NotMeasured("no GPU", cpu_metrics({flags: WRAPPED}, phases={})),
]
