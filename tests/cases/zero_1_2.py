from dataclasses import replace

from gpu_runs import FLAGS, GB, LOADER, MODEL, a_gpu, cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Missing
from advisor.metrics.gpu import device
from advisor.metrics.input import loader
from advisor.metrics.memory import (
    alloc_retries,
    mem_grads,
    mem_headroom,
    mem_optim,
    mem_params,
    mem_peak_allocated,
    memory_pressure,
    oom_count,
)
from advisor.metrics.program import driver
from advisor.metrics.settings import flags, model, world_size
from advisor.rules.base import Intervention, Safety


def replicated():
    """Return values of 1.5e9 parameters in 16 bits with an fp32 master copy under Adam, on 8 ranks with 40 GB each."""
    return {
        device: a_gpu("NVIDIA A100-SXM4-40GB", gb=40, count=8),
        world_size: 8,
        flags: replace(FLAGS, ddp=True),
        loader: replace(LOADER, batch_size=1),
        mem_params: 3 * GB,
        mem_grads: 3 * GB,
        mem_optim: 18 * GB,
        mem_peak_allocated: 38 * GB,
        mem_headroom: 0.02,
        memory_pressure: True,
        alloc_retries: 3,
    }


CASES = [
    Fires(
        "every rank keeps 18 GB of optimizer state",
        gpu_metrics(replicated()),
        code=(
            '"stage": 1',
            '"train_micro_batch_size_per_gpu": 1',
            '"bf16"',
            "__name__ == 'Block']:",
            "fully_shard(model",
        ),
        then="from 18.00 to 2.25 GB",
        memory=-round(15.75e9),
        no_gain=True,
        fault=True,
        intervention=Intervention(name="zero_redundancy", settings={"name": "AdamW"}, safety=Safety.MEMORY),
    ),
    Fires(
        "stage 1 is not enough: gradients too",
        gpu_metrics({**replicated(), mem_optim: 8 * GB, mem_grads: 8 * GB, oom_count: 1}),
        code='"stage": 2',
        memory=-14 * GB,
        by_hand=True,
    ),
    Fires("just above the limit", gpu_metrics({**replicated(), mem_peak_allocated: 59 * GB})),
    DoesNotFire("just below the limit", gpu_metrics({**replicated(), mem_peak_allocated: 61 * GB})),
    DoesNotFire("one rank", gpu_metrics({**replicated(), world_size: 1})),
    DoesNotFire("memory is not short", gpu_metrics({**replicated(), memory_pressure: False})),
    DoesNotFire("eight independent jobs", gpu_metrics({**replicated(), flags: FLAGS})),
    DoesNotFire("FSDP already", gpu_metrics({**replicated(), flags: replace(FLAGS, fsdp=True)})),
    DoesNotFire("ZeRO already", gpu_metrics({**replicated(), flags: replace(FLAGS, zero_stage=1)})),
    NotMeasured("optimizer memory was not measured", gpu_metrics({**replicated(), mem_optim: Missing("No", "Yes.")})),
    NotMeasured("settings were not read", gpu_metrics({**replicated(), flags: Missing("No", "Yes.")})),
    NotMeasured(
        "DeepSpeed with an unknown stage",
        gpu_metrics({**replicated(), flags: FLAGS, model: replace(MODEL, wrappers=("DeepSpeedEngine",))}),
    ),
    Fires(
        "the code uses the API of the framework that drives the loop",
        gpu_metrics({**replicated(), driver: "accelerate"}),
        code="FullyShardedDataParallelPlugin",
        absent=("zero_optimization", "fully_shard("),
    ),
    NotMeasured("no GPU allocator on CPU", cpu_metrics({world_size: 8}, phases={})),
]
