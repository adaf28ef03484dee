"""The GPU is idle for milliseconds at a time because the host does something other than launching kernels.

A launch takes microseconds. In a gap of a millisecond or more, the host runs Python or processes data: an optimizer
that loops over its parameters, logging, garbage collection, preprocessing between loader and model. CUDA graphs and
`torch.compile` do not remove such work.

Wrong when: the traced steps are not typical: a step that compiles, saves, or is the first of its kind.

Source: PyTorch Performance Tuning Guide, https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

from advisor.metrics import Metrics, Threshold, gpu, step
from advisor.models.effects import Triple, in_turn, relieve_host
from advisor.rules._phases import PASSES, remove_exposed
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, evidence, measure, python
from advisor.units import share

RULE = Rule("Find what the host does while the GPU is idle", Area.KERNELS, Confidence.HEURISTIC, difficulty=3)

MIN_STALL = Threshold(0.10, "Share of the step: removing 40 % of a smaller share gains less than 4 % (assumption).")

MAX_UNCERTAINTY = Threshold(
    0.3, "Above this, the trace is mostly a few long gaps, as at the start of a program; they may not repeat."
)

MIN_KERNELS = Threshold(
    100, "With fewer kernels, the program hardly uses the GPU, and gaps of a millisecond are normal (assumption)."
)

# Share of the stalls that is saved (assumption): none if the work is needed and cannot be done ahead.
REMOVED: Triple = (0.0, 0.4, 0.8)

CODE = """\
import torch

# once, to see which lines run while the GPU is idle
activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
schedule = torch.profiler.schedule(wait=10, warmup=2, active=3)
with torch.profiler.profile(activities=activities, schedule=schedule, with_stack=True) as prof:
    for batch in loader:
        train(batch)
        prof.step()
prof.export_chrome_trace("trace.json.gz")
"""


def when(m: Metrics) -> Evidence | None:
    """If the trace shows repeated gaps of more than a millisecond in which the host launches nothing and the GPU is
    idle, and they take at least 10 % of the step,
    """
    kernels, stall = m[gpu.traced_kernels], measure(m, gpu.host_stall_fraction, ">=", MIN_STALL)
    uncertainty = measure(m, step.step_time_uncertainty, "<=", MAX_UNCERTAINTY)
    return evidence(stall, uncertainty) if kernels >= m[MIN_KERNELS] else None


def then(m: Metrics, found: Evidence) -> Advice:
    """then find what the host does in these gaps, and do it ahead of time, on the GPU, or less often."""
    stall_share = m[gpu.host_stall_fraction]
    return Advice(
        then="Find what the host does while the GPU is idle: gaps of more than a millisecond take "
        f"{share(stall_share)} of the step. Do it ahead of time (loader workers), on the GPU (foreach or fused "
        "optimizers), or less often (logging, garbage collection).",
        changes=(python(CODE),),
        basis="0, 40 or 80 % of these gaps is saved, and the same share of the host's time for the step.",
        effect=in_turn(
            remove_exposed("stall", stall_share * sum(m[step.modeled_phases].values()), REMOVED, within=PASSES),
            relieve_host((REMOVED[0] * stall_share, REMOVED[1] * stall_share, REMOVED[2] * stall_share)),
        ),
        memory=0,
        risk="Low: recording Python stacks slows the program; remove it afterwards.",
    )
