"""The GPU is idle for much of the step although its next kernel is queued.

Kernels that are queued on one stream follow each other within one or two microseconds. If longer gaps remain, the GPU
does something that this trace does not show. Either it works for another process (GPUs are shared by time slices), or
the stream waits: for a second GPU of the same process, as in a model split over GPUs, for a host callback, or for
managed memory to arrive. Or the trace is incomplete: the profiler dropped events, or somebody removed them.

Wrong when: the gaps are due to the profiler itself, which pauses the GPU when its buffers are full.

Source: NVIDIA: Multi-Process Service, time-sliced scheduling, https://docs.nvidia.com/deploy/mps/index.html
Source: CUDA C++ Programming Guide: streams, https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#streams
"""

from advisor.metrics import Metrics, Threshold, gpu, step
from advisor.models.effects import Triple
from advisor.rules._phases import PASSES, remove_exposed
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, Severity, bash, evidence, measure
from advisor.units import share

RULE = Rule(
    "Find what keeps the GPU from queued work", Area.KERNELS, Confidence.HEURISTIC, difficulty=2, cap=Severity.INFO
)

MIN_SHARE = Threshold(0.10, "A smaller share of the step gains less than 5 % (assumption).")

MIN_GAP_US = Threshold(10.0, "Queued kernels follow each other within 1 to 2 us (assumption: five times that).")

# Share of these gaps that is saved (assumption): none if the trace lacks the work that ran in them.
REMOVED: Triple = (0.0, 0.4, 0.9)

CODE = """\
nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv  # other processes on this GPU; on AMD: rocm-smi
nvidia-smi -q -d COMPUTE | grep "Compute Mode"  # "Exclusive_Process" keeps others away
# one process and several GPUs (device_map="auto", pipeline stages): trace each GPU, and overlap the stages
# events dropped by the profiler: trace fewer steps, without record_shapes, profile_memory and with_stack
"""


def when(m: Metrics) -> Evidence | None:
    """If the GPU is idle for at least 10 % of the step although work is queued, in gaps that are longer than 10 us per
    kernel on average,
    """
    facts = measure(m, gpu.idle_queued_fraction, ">=", MIN_SHARE), measure(m, gpu.idle_queued_us, ">=", MIN_GAP_US)
    device = m.get(gpu.device)
    return evidence(*facts, note=device.name if device and device.name else "GPU")


def then(m: Metrics, found: Evidence) -> Advice:
    """then find out what else uses the GPU, or what the stream waits for."""
    idle_share = m[gpu.idle_queued_fraction]
    return Advice(
        then=f"Find out what the {found.note} does while kernels are queued, {share(idle_share)} of the step: it may "
        "work for another process, wait for another GPU or the host, or the trace may lack events. Check this first: "
        "the other predictions count these gaps as time of the program.",
        changes=(bash(CODE),),
        basis="0 % (if the trace lacks events), 40 or 90 % of these gaps is saved.",
        effect=remove_exposed("queued", idle_share * sum(m[step.modeled_phases].values()), REMOVED, within=PASSES),
        memory=0,
        risk="None: the first step is only a check.",
    )
