"""Why a rank is slow: what is measured on it beside the one in the middle, in numbers computed by hand."""

from dataclasses import replace

import pytest
from profiles import batches, metrics, rank, steps

from advisor.metrics import stragglers
from advisor.metrics.base import Missing
from profiler.schema import DeviceFact, Gpu, GpuSample, LoaderFact, MemoryFact, ModelFact, PaddingFact, SchedulingFact

SLOW = 2


def ranks(*own: float, phase: str = "forward", step: float = 0.1, **tables):
    """Ranks that work so long before a backward pass which takes the rest; a table is a function of the rank."""
    return [
        rank(
            number,
            process={"world_size": len(own)},
            steps=steps(*[step] * 30, **{"backward": step - each, phase: each}),
            **{name: of(number) for name, of in tables.items()},
        )
        for number, each in enumerate(own)
    ]


def causes(*made, **tables):
    return {cause.name: cause.told for cause in metrics(*made, **tables)[stragglers.straggler_causes]}


def test_who_waits_for_whom():
    m = metrics(*ranks(0.02, 0.03, 0.08))
    assert m[stragglers.waits] == (
        (0, pytest.approx(0.06)),
        (1, pytest.approx(0.05)),
        (2, pytest.approx(0)),
    )
    assert (m[stragglers.slowest_pair].slow.rank, m[stragglers.slowest_pair].middle.rank) == (2, 1)


def test_where_nothing_accounts_for_it_no_cause_is_made_up():
    assert causes(*ranks(0.02, 0.03, 0.08)) == {}


@pytest.mark.parametrize(
    ("phase", "name"), [("data_wait", "data"), ("loader_overhead", "data"), ("gc", "gc"), ("h2d", "copies")]
)
def test_a_phase_that_is_longer(phase, name):
    assert list(causes(*ranks(0.02, 0.03, 0.08, phase=phase))) == [name]


def test_larger_batches():
    def made(number, samples):
        return batches(0.01, 0.01, samples=samples if number == SLOW else 16.0)

    def loaders(number):
        return (LoaderFact(id=1, training=True),)

    # Own work is 20, 20 and 80 ms and the shortest backward pass of 20: 2.5 times the middle. Half of that counts.
    found = causes(*ranks(0.02, 0.02, 0.08, batches=lambda n: made(n, 64.0), loaders=loaders))
    assert found == {"batches": "rank 2 has 64 samples a batch, rank 0 16"}
    assert causes(*ranks(0.02, 0.02, 0.08, batches=lambda n: made(n, 27.0), loaders=loaders)) == {}, "of 28 were enough"


def test_longer_sequences():
    def padding(number):
        return (PaddingFact(id=1, batches=10, padded=40_000 if number == SLOW else 10_000),)

    assert causes(*ranks(0.02, 0.02, 0.08, paddings=padding)) == {
        "batches": "rank 2 has 4,000 tokens a batch, rank 0 1,000"
    }


def test_a_core_that_others_use():
    def scheduling(waited):
        return lambda number: SchedulingFact(seconds=10.0, waited=waited if number == SLOW else 0.1)

    assert "host" in causes(*ranks(0.02, 0.02, 0.08, scheduling=scheduling(4.0)))
    assert causes(*ranks(0.02, 0.02, 0.08, scheduling=scheduling(3.0))) == {}, "29 of 60 ms a step"


def test_a_gpu_at_a_lower_clock():
    gpus = tuple(Gpu(index=number, uuid=f"GPU-{number}", name="H100", memory_total=1) for number in range(3))
    samples = [GpuSample(time=1.0, gpu=n, utilization=0.9, sm_clock=600 if n == SLOW else 1800) for n in range(3)]
    idle = GpuSample(time=2.0, gpu=0, utilization=0.0, sm_clock=200)
    found = causes(
        *ranks(
            *(0.02, 0.02, 0.08),
            devices=lambda number: (DeviceFact(id=0, uuid=str(number)),),
            memory_peaks=lambda number: (MemoryFact(id=0),),
        ),
        gpus=gpus,
        gpu_samples=(*samples, idle),
    )
    assert found == {"gpu": "the GPU of rank 2 runs at 600 MHz while it computes, that of rank 0 at 1800"}


def test_memory_of_the_fullest_rank():
    def peaks(number):
        return (MemoryFact(id=0, reserved_peak=30 if number == SLOW else 20),)

    assert metrics(*ranks(0.02, 0.02, 0.02, memory_peaks=peaks))[stragglers.memory_imbalance] == pytest.approx(0.5)
    with pytest.raises(Missing):
        metrics(*ranks(0.02, 0.02))[stragglers.memory_imbalance]


def test_stages_of_a_pipeline_are_no_stragglers():
    made = [replace(each, models=(ModelFact(id=1, parameters=each.process.rank),)) for each in ranks(0.02, 0.08)]
    with pytest.raises(Missing, match="different parts"):
        metrics(*made)[stragglers.slowest_pair]
