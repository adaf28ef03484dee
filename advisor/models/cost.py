"""The cost of training: GPU-hours and money."""

from dataclasses import dataclass

# GPU-hours that a saving refers to; a profiled run is too short for its own hours to be meaningful.
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
