import pytest
from profiles import metrics, rank

from advisor.metrics.base import Goals, Missing
from advisor.metrics.cost import gpu_hours, kwh, usd
from profiler.schema import Gpu, GpuSample, MemoryFact

GPUS = tuple(Gpu(index=n, uuid=str(n), name="A100", memory_total=1) for n in range(8))


def test_eight_ranks_for_an_hour():
    m = metrics(rank(process={"world_size": 8}), gpus=GPUS, goals=Goals(gpu_price=2.5))

    assert m[gpu_hours] == pytest.approx(8.0)
    assert m[usd] == pytest.approx(20.0)


def test_a_gpu_that_is_only_seen_costs_nothing():
    assert metrics(rank(), gpus=GPUS)[gpu_hours] == pytest.approx(1.0)


def test_a_rank_that_was_not_sampled_uses_the_devices_of_its_peaks():
    """Of many ranks all but the first are read without the samples of their memory."""
    ranks = (rank(n, memory_peaks=(MemoryFact(id=2 * n), MemoryFact(id=2 * n + 1))) for n in range(4))
    assert metrics(*ranks, gpus=GPUS)[gpu_hours] == pytest.approx(8.0)


def test_without_a_price():
    with pytest.raises(Missing) as caught:
        metrics(rank(), gpus=GPUS)[usd]

    assert "--gpu-price" in caught.value.remedy


def test_without_a_gpu():
    with pytest.raises(Missing):
        metrics(rank())[gpu_hours]


def test_energy():
    samples = (GpuSample(time=0.0, gpu=0, energy=0.0), GpuSample(time=9.0, gpu=0, energy=7.2e6))

    assert metrics(rank(), gpus=GPUS, gpu_samples=samples)[kwh] == pytest.approx(2.0)
