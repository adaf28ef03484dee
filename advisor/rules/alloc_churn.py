"""The GPU waits in every step while the host requests memory from the driver.

torch caches and reuses the memory that it has allocated, so a loop calls neither `cudaMalloc` nor `cudaFree` after its
warm-up. If the calls continue, there are three possible causes: the loop empties the cache, tensor sizes keep changing,
or so little memory is free that the allocator returns its blocks and requests new ones. `cudaFree` also waits until the
GPU has finished all its work.

Wrong when: the recorded steps are the first ones with their shapes. The calls then stop by themselves.

Source: PyTorch: CUDA memory management, https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-memory-management
"""

from advisor.metrics import Metrics, Threshold, gpu, step
from advisor.models.effects import in_turn, relieve_host, up_to
from advisor.rules._phases import PASSES, remove_exposed
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, evidence, measure, python
from advisor.units import share

RULE = Rule(
    "Do not allocate GPU memory in every step", Area.STALLS, Confidence.PHASE_REMOVAL, supersedes=("host-stall",)
)

MIN_STALL = Threshold(0.03, "A smaller share of the step is within its noise.")

MIN_STEPS = Threshold(2, "Calls in a single step may be the first allocations of their sizes.")

CODE = """\
# in the loop: no torch.cuda.empty_cache()
# in the environment, before the program starts:
#   PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
"""


def when(m: Metrics) -> Evidence | None:
    """If the GPU is idle for at least 3 % of the step while the host allocates or frees device memory,"""
    return evidence(
        measure(m, gpu.allocation_stall_fraction, ">=", MIN_STALL), measure(m, step.steady_step_count, ">=", MIN_STEPS)
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then keep torch's cache: do not empty it in the loop, use expandable segments, and leave some memory free."""
    stall_share = m[gpu.allocation_stall_fraction]
    return Advice(
        then="Take torch.cuda.empty_cache() out of the loop, and set expandable_segments:True if sizes vary: the GPU "
        f"is idle for {share(stall_share)} of the step while memory is allocated or freed. If neither helps, too "
        "little memory is free: use a slightly smaller batch.",
        changes=(python(CODE),),
        basis="50, 80 or 100 % of the calls disappear.",
        effect=in_turn(
            remove_exposed("allocation", stall_share * sum(m[step.modeled_phases].values()), up_to(1.0), PASSES),
            relieve_host(up_to(stall_share)),
        ),
        memory=0,
        risk="Low: the cache keeps memory that other processes on this GPU cannot use.",
    )
