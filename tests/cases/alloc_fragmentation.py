from dataclasses import replace

from gpu_runs import FLAGS, GB, cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Missing
from advisor.metrics.memory import alloc_retries, fragmentation_ratio, mem_peak_allocated, mem_peak_reserved, oom_count
from advisor.metrics.settings import flags
from advisor.rules.base import Intervention, Safety


def fragmented(ratio: float = 0.23, retries: int = 12, failures: int = 0):
    return {
        fragmentation_ratio: ratio,
        mem_peak_reserved: 78 * GB,
        mem_peak_allocated: 60 * GB,
        alloc_retries: retries,
        oom_count: failures,
    }


CASES = [
    Fires(
        "allocation retries while a quarter of the reserved memory is unused",
        gpu_metrics(fragmented()),
        code=("PYTORCH_ALLOC_CONF=expandable_segments:True\n", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n"),
        memory=-round(0.7 * 18e9),
        no_gain=True,
        fault=True,
        intervention=Intervention(
            name="environment",
            settings={"variables": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}},
            safety=Safety.EXACT,
        ),
    ),
    Fires(
        "other allocator settings are kept",
        gpu_metrics({**fragmented(), flags: replace(FLAGS, allocator_config="max_split_size_mb:512")}),
        code="PYTORCH_ALLOC_CONF=max_split_size_mb:512,expandable_segments:True\n",
    ),
    Fires(
        "expandable segments are switched off",
        gpu_metrics({**fragmented(), flags: replace(FLAGS, allocator_config="expandable_segments:False,a:1")}),
        code="PYTORCH_ALLOC_CONF=expandable_segments:True,a:1\n",
    ),
    Fires("just above the limit, out of memory once", gpu_metrics(fragmented(0.151, retries=0, failures=1))),
    DoesNotFire("just below the limit", gpu_metrics(fragmented(0.149))),
    DoesNotFire("fragmented, but nothing failed", gpu_metrics(fragmented(retries=0))),
    DoesNotFire(
        "segments are expandable already",
        gpu_metrics({**fragmented(), flags: replace(FLAGS, allocator_config="expandable_segments:True")}),
    ),
    NotMeasured(
        "the allocator was not sampled",
        gpu_metrics({**fragmented(), alloc_retries: Missing("No samples", "Train longer.")}),
    ),
    NotMeasured("no GPU", cpu_metrics(phases={})),
]
