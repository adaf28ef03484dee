from dataclasses import replace

from gpu_runs import FLAGS, GB, LOADER, MODEL, a_gpu, cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Goals, Missing
from advisor.metrics.gpu import device
from advisor.metrics.input import loader
from advisor.metrics.memory import mem_activations, mem_grads, mem_headroom, memory_pressure, oom_count
from advisor.metrics.settings import flags, model, world_size
from advisor.metrics.step import micro_steps_per_step
from advisor.models.state import State
from advisor.rules.base import Intervention, Safety
from profiler.schema import Place

VIA = Place(file="train.py", line=12, via=("transformers",))


def full(batch: int = 16):
    """Return values of a full 79 GB GPU: 59 fixed, and 20 for 16 samples. With micro-batches, the 4 GB of gradients
    stay where activations are now: 1.5 GB per sample, of which 9 fit."""
    return {
        device: a_gpu(gb=79),
        loader: replace(LOADER, batch_size=batch),
        mem_activations: 20 * GB,
        mem_headroom: 0.0,
        memory_pressure: True,
        oom_count: 1,
    }


CASES = [
    Fires(
        "out of memory with a batch of 16",
        gpu_metrics(full()),
        code=("batch_size=8)", "accumulate = 2", "/ accumulate"),
        absent="no_sync",
        then="16 samples per update",
        memory=-8 * GB,
        state=State(phases={"forward": 0.04, "backward": 0.06}, launch_idle=0.01),
        removed=(-0.1, -0.1, -0.1),
        fault=True,
        intervention=Intervention(
            name="micro_batch", settings={"file": "train.py", "line": 12, "pieces": 2}, safety=Safety.TRAJECTORY
        ),
    ),
    Fires(
        "gradients are already kept between micro-batches",
        gpu_metrics({**full(), micro_steps_per_step: 2.0}),
        code=("batch_size=8)", "accumulate = 4"),
        memory=-10 * GB,
    ),
    Fires(
        "large gradients leave less memory for samples",
        gpu_metrics({**full(), mem_grads: 20 * GB}),
        code="batch_size=4)",
    ),
    DoesNotFire("with the gradients in memory, not even one sample fits", gpu_metrics({**full(), mem_grads: 300 * GB})),
    NotMeasured("gradients were not measured", gpu_metrics({**full(), mem_grads: Missing("No", "Yes.")})),
    Fires(
        "a framework creates the DataLoader",
        gpu_metrics({**full(), loader: replace(LOADER, batch_size=16, place=VIA)}),
        by_hand=True,
    ),
    Fires(
        "under DistributedDataParallel",
        gpu_metrics({**full(), flags: replace(FLAGS, ddp=True)}),
        code="model.no_sync()",
    ),
    Fires("a batch of two", gpu_metrics({**full(2), mem_activations: 40 * GB}), code="batch_size=1)"),
    DoesNotFire("a single sample cannot be split", gpu_metrics(full(1))),
    DoesNotFire("not even one sample fits", gpu_metrics({**full(), mem_activations: GB})),
    DoesNotFire("no memory pressure and no target batch size", gpu_metrics({**full(), memory_pressure: False})),
    Fires(
        "the target batch size does not fit",
        gpu_metrics({mem_activations: 46 * GB}, goals=Goals(target_batch=64)),
        code=("batch_size=16)", "accumulate = 4"),
        note="the target is 64",
        by_hand=True,
    ),
    Fires(
        "the target batch size counts the samples of all ranks",
        gpu_metrics({mem_activations: 46 * GB, world_size: 8}, goals=Goals(target_batch=8 * 64)),
        code=("batch_size=16)", "accumulate = 4"),
        then="512 samples per update",
    ),
    Fires(
        "on a mesh, two ranks compute the same samples",
        gpu_metrics(
            {mem_activations: 46 * GB, world_size: 16, model: replace(MODEL, data_parallel=8)},
            goals=Goals(target_batch=8 * 64),
        ),
        code=("batch_size=16)", "accumulate = 4"),
        then="512 samples per update",
    ),
    DoesNotFire(
        "the target batch size fits on all ranks together",
        gpu_metrics({mem_activations: 46 * GB, world_size: 8}, goals=Goals(target_batch=8 * 18)),
    ),
    DoesNotFire("the target batch size fits", gpu_metrics({mem_activations: 46 * GB}, goals=Goals(target_batch=18))),
    DoesNotFire(
        "the target batch size is reached by accumulation already",
        gpu_metrics({micro_steps_per_step: 4.0}, goals=Goals(target_batch=64)),
    ),
    NotMeasured("the batch size is unknown", gpu_metrics({**full(), loader: replace(LOADER, batch_size=None)})),
    NotMeasured("activations were not measured", gpu_metrics({**full(), mem_activations: Missing("No", "Yes.")})),
    NotMeasured("no GPU", cpu_metrics(phases={})),
]
