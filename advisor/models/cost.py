"""The cost of training: GPU-hours and money."""

from dataclasses import dataclass

# GPU-hours that a saving is given for: a profiled run is too short for its own hours to mean much.
SAVING_OF = 100.0


@dataclass(frozen=True, slots=True)
class Saving:
    """The saving per 100 GPU-hours of this training; negative if it costs more."""

    gpu_hours: float
    money: float | None
    """Money saved, in the currency of the price given for a GPU-hour; None without a price."""


def saving(share: float, gpu_price: float | None) -> Saving:
    """Return the value of removing `share` of the step time, with the same number of steps."""
    hours = SAVING_OF * share
    return Saving(hours, None if gpu_price is None else hours * gpu_price)


def gpu_hours_ratio(gpus: tuple[int, int], step_times: tuple[float, float]) -> float:
    """Return (G1/G0)(T1/T0), the GPU-hours after a change of the number of GPUs over those before.

    Raises:
        ValueError: there is no GPU, or a time is not positive.
    """
    if min(gpus) < 1 or min(step_times) <= 0:
        raise ValueError(f"no hours of {gpus} GPUs at {step_times} s a step")
    return gpus[1] / gpus[0] * step_times[1] / step_times[0]


def money(hours: float, gpu_price: float) -> float:
    """Return the price of some GPU-hours, in the currency of the price of one."""
    return hours * gpu_price
