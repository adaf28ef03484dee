"""The cost of the recorded run."""

import math
from collections.abc import Sequence

from advisor.metrics.base import Metrics, Missing, Need, known, metric
from advisor.metrics.gpu import device
from advisor.metrics.hardware import gpu_energy
from advisor.metrics.host import run
from advisor.metrics.settings import no_window, primary_rank, world_size
from advisor.metrics.step import WARM_UP, ordinary
from advisor.metrics.weighted import measured, quantile
from profiler.schema import Step


@metric("h", "GPU-hours")
def gpu_hours(m: Metrics) -> float:
    """Number of GPUs in use times the hours of the run.

    One GPU per rank is in use, or every GPU whose memory torch used, if that is more.
    """
    remedy = "Wait until the run has ended, then create the report again."
    duration = known(m[run].duration, "The run's duration is unknown", remedy)
    return max(m[world_size], _devices(m)) * duration / 3600


def _devices(m: Metrics) -> int:
    """Return the number of devices that torch used on all ranks.

    Raises:
        Missing: there is no GPU.
    """
    m[device]
    return sum(
        len({sample.device for sample in rank.memory_samples} or {fact.id for fact in rank.memory_peaks})
        for rank in m.profile.ranks
    )


NEIGHBORS = 40
"""Steps compared on each side of the first window: near it, to exclude other changes over time."""
NOTCH = 1.57
"""Half a notch, in units of the interquartile range divided by the square root of the count.

Medians whose notches do not overlap differ (McGill, Tukey and Larsen, Variations of Box Plots, 1978).
"""


@metric("1", "change in step time caused by the first profiler window")
def slowdown_after_window(m: Metrics) -> float:
    """Relative increase of the step time after the first profiler window on a GPU.

    CUPTI stays subscribed after a window ends, which may slow launches permanently (pytorch issue 144455). There is no
    value if there was no window, if fewer than ten steps lie on either side, or if the difference is within the noise.
    """
    windows = [window for window in m[primary_rank].windows if window.device == "cuda"]
    if not windows:
        raise no_window(m)
    first = min(windows, key=lambda window: window.start)
    steps = ordinary(m[primary_rank].steps)
    before = [step for step in steps[WARM_UP:] if step.start + step.count * step.duration <= first.start][-NEIGHBORS:]
    after = [step for step in steps if step.start >= first.start + first.duration][:NEIGHBORS]
    if min(sum(step.count for step in side) for side in (before, after)) < WARM_UP:
        raise Missing("There are too few steps before and after the first window", "Record at least 100 steps.")
    (earlier, earlier_noise), (later, later_noise) = _notched(before), _notched(after)
    if abs(later - earlier) <= earlier_noise + later_noise:
        raise Missing("The first window changed the step time by no more than its noise", "Nothing to do.")
    return later / earlier - 1


def _notched(steps: Sequence[Step]) -> tuple[float, float]:
    """Return the median duration of the steps, and half its notch."""
    low, middle, high = (quantile(measured(steps, "duration"), q) for q in (0.25, 0.5, 0.75))
    return middle, NOTCH * (high - low) / math.sqrt(sum(step.count for step in steps))


@metric("currency", "cost")
def usd(m: Metrics) -> float:
    """GPU-hours times the price per GPU-hour, in your currency."""
    remedy = "Declare it: profile-train --gpu-price PRICE."
    price = known(m.goals.gpu_price, "The price of a GPU-hour is unknown", remedy, Need.DECLARATION)
    return m[gpu_hours] * price


@metric("kWh", "energy in kWh")
def kwh(m: Metrics) -> float:
    """Energy the GPUs used, in kWh."""
    return m[gpu_energy] / 3.6e6
