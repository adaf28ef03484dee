"""What the recorded run cost."""

from advisor.metrics.base import Metrics, Missing, Need, metric
from advisor.metrics.gpu import device
from advisor.metrics.hardware import gpu_energy
from advisor.metrics.host import run
from advisor.metrics.settings import world_size


@metric("h", "GPU-hours")
def gpu_hours(m: Metrics) -> float:
    """GPUs in use (one a rank, or all whose memory torch has used if that is more) times the hours of the run."""
    duration = m[run].duration
    if duration is None:
        raise Missing("The run's duration is unknown", "Wait until it has ended, then make the report again.")
    return max(m[world_size], _devices(m)) * duration / 3600


def _devices(m: Metrics) -> int:
    """Devices of every rank that torch has used; raises Missing without a GPU."""
    m[device]
    return sum(
        len({sample.device for sample in rank.memory} or {fact.id for fact in rank.memory_peaks})
        for rank in m.profile.ranks
    )


@metric("currency", "cost")
def usd(m: Metrics) -> float:
    """GPU-hours times the price given for one."""
    if m.goals.gpu_price is None:
        raise Missing(
            "The price of a GPU-hour is unknown", "Give it: profile-train --gpu-price PRICE.", Need.DECLARATION
        )
    return m[gpu_hours] * m.goals.gpu_price


@metric("kWh", "energy in kWh")
def kwh(m: Metrics) -> float:
    """Energy the GPUs used."""
    return m[gpu_energy] / 3.6e6
