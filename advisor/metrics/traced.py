"""What an imported torch.profiler trace shows about its program."""

from advisor.metrics.base import Metrics, Missing, known, metric
from advisor.metrics.peaks import peak_rates
from advisor.metrics.settings import is_trace, primary_rank
from advisor.metrics.step import gpu_windows
from advisor.models.roofline import TYPICAL
from profiler.schema import TraceFact

_LAST = ("aten::_foreach_addcdiv_", "aten::addcdiv_")
"""Last operator of an unfused Adam update: it reads parameters, momentum and denominator, and writes parameters."""
FUSED_TENSORS, LAST_TENSORS = 7, 4
"""Numbers of tensors read and written: by a fused update, and by the last operator of an unfused one.

A fused update reads parameters, gradients and both moments, and writes all but gradients.
"""


@metric(None)
def trace(m: Metrics) -> TraceFact:
    """The primary rank's trace. A recording has no value, because it shows the program's settings directly."""
    traces = m[primary_rank].traces
    if not traces or not m.get(is_trace):
        raise Missing("This is not a trace", "Nothing to do: a recording shows the program's settings.")
    return traces[0]


@metric(None)
def traced_workers(m: Metrics) -> bool:
    """Whether the traced program's DataLoader has worker processes."""
    remedy = "Nothing to do, if the program loads data without one."
    return known(m[trace].workers, "The trace contains no DataLoader fetch", remedy)


@metric("s", "time of a fused update")
def fused_update(m: Metrics) -> float:
    """Seconds per step in which a fused Adam updates as many parameters, at the bandwidth that updates attain."""
    operators = [
        operator for operator in m[primary_rank].operators if operator.name in _LAST and operator.phase == "optimizer"
    ]
    steps, bandwidth = sum(window.steps for window in gpu_windows(m)), m[peak_rates].bandwidth
    moved_bytes = sum(operator.bytes or 0.0 for operator in operators) * FUSED_TENSORS / LAST_TENSORS
    if not moved_bytes or not steps or not bandwidth or any(operator.bytes is None for operator in operators):
        raise Missing("The bytes of an unfused update were not recorded", "Trace with record_shapes=True.")
    return moved_bytes / steps / (TYPICAL["optimizer"].memory * bandwidth)
