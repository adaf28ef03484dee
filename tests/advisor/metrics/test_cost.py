import pytest
from profiles import metrics, rank, steps

from advisor.metrics.base import Goals, Missing
from advisor.metrics.cost import gpu_hours, kwh, slowdown_after_window, usd
from profiler.schema import DeviceFact, Gpu, GpuSample, MemoryFact, Window

GPUS = tuple(Gpu(index=n, uuid=str(n), name="A100", memory_total=1) for n in range(8))


def test_eight_ranks_for_an_hour():
    m = metrics(rank(process={"world_size": 8}), gpus=GPUS, goals=Goals(gpu_price=2.5))

    assert m[gpu_hours] == pytest.approx(8.0)
    assert m[usd] == pytest.approx(20.0)


def test_unused_gpu_costs_nothing():
    assert metrics(rank(), gpus=GPUS)[gpu_hours] == pytest.approx(1.0)


def test_devices_of_unsampled_rank_come_from_memory_peaks():
    """With many ranks, memory samples are read for the first rank only."""
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


def windowed(*durations, at):
    """Return metrics of steps on a GPU, with a window at step `at`."""
    window = Window(pid=1, start=sum(durations[:at]), steps=1, duration=0.01, cost=0.0, device="cuda")
    return metrics(rank(steps=steps(*durations), windows=(window,), devices=(DeviceFact(id=0),)))


def test_steps_that_stay_slower_after_the_first_window():
    before, after = [0.1, 0.101] * 15, [0.115, 0.116] * 15
    assert windowed(*before, 0.3, *after, at=30)[slowdown_after_window] == pytest.approx(0.15)
    assert windowed(*after, 0.3, *before, at=30)[slowdown_after_window] < 0


@pytest.mark.parametrize(
    ("durations", "at"),
    [
        ([0.1, 0.11, 0.12, 0.13] * 20, 40),  # no different
        ([0.1, 0.18, 0.14, 0.16, 0.12] * 6 + [0.11, 0.19, 0.15, 0.17, 0.13] * 6, 30),  # noise
        ([0.1] * 15 + [0.12] * 30, 15),  # little more than warm-up before the window
        ([0.1] * 30 + [0.12] * 5, 30),
    ],
)
def test_slowdown_within_noise_is_missing(durations, at):
    with pytest.raises(Missing):
        windowed(*durations, at=at)[slowdown_after_window]


def test_without_a_window_there_is_no_slowdown():
    with pytest.raises(Missing):
        metrics(rank(steps=steps(*[0.1] * 60)))[slowdown_after_window]
