"""The allocator holds free memory, but in blocks that no tensor fits into.

PyTorch's allocator keeps freed blocks for later. If tensor sizes vary, the blocks do not fit the next tensors. The
program then runs out of memory although much of it is free, or the allocator returns its blocks and requests new ones,
which synchronizes with the GPU. Expandable segments let blocks grow instead.

Wrong when: the program uses the `cudaMallocAsync` backend, or shares CUDA tensors between processes, which
expandable segments do not support everywhere.

Source: PyTorch, CUDA semantics: optimizing memory usage, https://docs.pytorch.org/docs/stable/notes/cuda.html
Source: Bekman, Machine Learning Engineering, https://github.com/stas00/ml-engineering
"""

from advisor.metrics import Metrics, Threshold, memory, settings
from advisor.rules.base import Advice, Area, Confidence, Evidence, Intervention, Rule, Safety, bash, evidence, measure

RULE = Rule(
    "Use expandable segments in the allocator",
    Area.MEMORY,
    Confidence.HEURISTIC,
    supersedes=(
        "batch-raise",
        "grad-accum",
        "ckpt-selective",
        "ckpt-every-n",
        "optimizer-8bit",
        "zero-1-2",
        "zero-3-fsdp",
        "offload-states",
    ),
)

MIN_FRAGMENTATION = Threshold(
    0.15, "In a regular step, rounding and caching leave less than a seventh of the memory reserved but unused."
)

# Share of the reserved but unused memory that expandable segments free (assumption).
FREED = 0.7

SETTING = "expandable_segments:True"
OFF = "expandable_segments:False"


def when(m: Metrics) -> Evidence | None:
    """If allocations failed or were retried while at least 15 % of the reserved memory held no tensor,"""
    fragmentation, retries = (
        measure(m, memory.fragmentation_ratio, ">=", MIN_FRAGMENTATION),
        measure(m, memory.alloc_retries),
    )
    failures, flags = measure(m, memory.oom_count), m.get(settings.flags)
    if (flags and SETTING in (flags.allocator_config or "")) or retries.value + failures.value == 0:
        return None
    return evidence(fragmentation, retries, failures)


def then(m: Metrics, found: Evidence) -> Advice:
    """then turn on expandable segments, and record again before you change anything else about memory."""
    flags = m.get(settings.flags)
    old_config = (flags.allocator_config if flags else None) or ""
    config = old_config.replace(OFF, SETTING) if OFF in old_config else f"{old_config},{SETTING}".lstrip(",")
    freed_bytes = round(FREED * (m[memory.mem_peak_reserved] - m[memory.mem_peak_allocated]))
    return Advice(
        then=f"Start the program with expandable segments: about {freed_bytes / 1e9:.1f} GB of the reserved memory "
        "become usable. If lengths vary, also run the longest batch first. Then record again before you change "
        "anything else about memory.",
        changes=(
            bash(f"export PYTORCH_ALLOC_CONF={config}\n# torch before 2.9: export PYTORCH_CUDA_ALLOC_CONF={config}\n"),
        ),
        basis="70 % of the memory that is reserved but unused at the peak. The time spent on retries is not predicted.",
        memory=-freed_bytes,
        intervention=Intervention(
            name="environment", settings={"variables": {_variable(m): config}}, safety=Safety.EXACT
        ),
        risk="No known effect on results; the first allocations take slightly longer.",
        fault=True,
    )


def _variable(m: Metrics) -> str:
    """Return the name of the environment variable for this version of torch.

    Versions before 2.9 support only the old name; later ones deprecate it.
    """
    rank = m.get(settings.primary_rank)
    version = ((rank.process.torch if rank else None) or "").split("+")[0].split(".")[:2]
    has_new_name = len(version) == 2 and all(map(str.isdigit, version)) and tuple(map(int, version)) >= (2, 9)
    return "PYTORCH_ALLOC_CONF" if has_new_name else "PYTORCH_CUDA_ALLOC_CONF"
