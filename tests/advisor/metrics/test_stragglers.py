"""Why a rank is slow: comparison with the middle rank, in hand-computed numbers."""

import re
from dataclasses import replace

import pytest
from profiles import batches, metrics, nvml_uuid, rank, steps, torch_uuid
from traces_made import ALL_REDUCE, GEMM, GPU, NCCL, Made

from advisor.metrics import stragglers
from advisor.metrics.base import Metrics, Missing
from advisor.metrics.communication import straggler_skew
from advisor.rules import all_rules
from advisor.runs.traces import load
from profiler.schema import (
    DeviceFact,
    FlagsFact,
    Gpu,
    GpuSample,
    LoaderFact,
    MemoryFact,
    ModelFact,
    PaddingFact,
    SchedulingFact,
    Stack,
)

SLOW = 2


def ranks(*own: float, phase: str = "forward", step: float = 0.1, count: int = 30, **tables):
    """Return ranks that work `own` seconds before a backward pass of the rest; tables are functions of the rank."""
    return [
        rank(
            number,
            process={"world_size": len(own)},
            steps=steps(*[step] * count, **{"backward": step - each, phase: each}),
            **{name: of(number) for name, of in tables.items()},
        )
        for number, each in enumerate(own)
    ]


def causes(*made, **tables):
    return {cause.name: cause.text for cause in metrics(*made, **tables)[stragglers.straggler_causes]}


def numbers(text):
    """Return the numbers in a text: the slow rank and its value, then the rank it is compared with and its value."""
    return [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?<!,)", text)]


def test_who_waits_for_whom():
    m = metrics(*ranks(0.02, 0.03, 0.08))
    assert m[stragglers.waits] == (
        (0, pytest.approx(0.06)),
        (1, pytest.approx(0.05)),
        (2, pytest.approx(0)),
    )
    assert (m[stragglers.slowest_pair].slow.rank, m[stragglers.slowest_pair].middle.rank) == (2, 1)


def test_unexplained_delay_has_no_cause():
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

    # Own work is 20, 20 and 80 ms plus the shortest backward pass of 20: 2.5 times the middle. Half of that counts.
    found = causes(*ranks(0.02, 0.02, 0.08, batches=lambda n: made(n, 64.0), loaders=loaders))
    assert {name: numbers(text) for name, text in found.items()} == {"batches": [2, 64, 0, 16]}
    assert causes(*ranks(0.02, 0.02, 0.08, batches=lambda n: made(n, 27.0), loaders=loaders)) == {}, "of 28 were enough"


def test_longer_sequences():
    def padding(number):
        return (PaddingFact(id=1, batches=10, padded=40_000 if number == SLOW else 10_000),)

    found = causes(*ranks(0.02, 0.02, 0.08, paddings=padding))
    assert {name: numbers(text) for name, text in found.items()} == {"batches": [2, 4000, 0, 1000]}


def test_a_core_that_others_use():
    def scheduling(waited):
        return lambda number: SchedulingFact(seconds=10.0, waited=waited if number == SLOW else 0.1)

    assert "host" in causes(*ranks(0.02, 0.02, 0.08, scheduling=scheduling(4.0)))
    assert causes(*ranks(0.02, 0.02, 0.08, scheduling=scheduling(3.0))) == {}, "29 of 60 ms a step"


def test_a_gpu_at_a_lower_clock():
    gpus = tuple(Gpu(index=number, uuid=nvml_uuid(number), name="H100", memory_total=1) for number in range(3))
    samples = [GpuSample(time=1.0, gpu=n, utilization=0.9, sm_clock=600 if n == SLOW else 1800) for n in range(3)]
    idle = GpuSample(time=2.0, gpu=0, utilization=0.0, sm_clock=200)
    found = causes(
        *ranks(
            *(0.02, 0.02, 0.08),
            devices=lambda number: (DeviceFact(id=0, uuid=torch_uuid(number)),),
            memory_peaks=lambda number: (MemoryFact(id=0),),
        ),
        gpus=gpus,
        gpu_samples=(*samples, idle),
    )
    assert {name: numbers(text) for name, text in found.items()} == {"gpu": [2, 600, 0, 1800]}


def clocked(forwards, clocks, *, samples=20, fsdp=False):
    """Return metrics of DDP ranks that end their 100 ms steps together: the backward pass takes the rest."""
    count = len(clocks)
    gpus = tuple(Gpu(index=number, uuid=nvml_uuid(number), name="H100", memory_total=1) for number in range(count))
    seen = [GpuSample(time=1.0, gpu=n, utilization=0.9, sm_clock=clocks[n], count=samples) for n in range(count)]
    made = ranks(
        *forwards,
        count=60,
        devices=lambda number: (DeviceFact(id=0, uuid=torch_uuid(number)),),
        memory_peaks=lambda number: (MemoryFact(id=0),),
        flags=lambda _: FlagsFact(ddp=not fsdp, fsdp=fsdp),
    )
    return metrics(*made, gpus=gpus, gpu_samples=seen)


ALL = [1800.0] * 7
RULE = next(rule for rule in all_rules() if rule.id == "straggler-rank")


def test_a_gpu_that_is_a_fifth_slower_is_the_straggler():
    """Its forward pass takes 36 ms instead of 30; all backward passes end with its own, of 64 ms."""
    m = clocked([0.03] * 7 + [0.036], [*ALL, 1500.0])

    assert m[straggler_skew] == pytest.approx(0.1 / (0.1 * 1500 / 1800) - 1)
    assert m[stragglers.slowest_pair].slow.rank == 7
    assert RULE.when(m) is not None
    assert [cause.name for cause in m[stragglers.straggler_causes]] == ["gpu"]


def test_slow_gpu_under_fsdp_is_found_by_its_clock():
    m = clocked([0.035] * 8, [*ALL, 1440.0], fsdp=True)

    assert m[stragglers.slowest_pair].slow.rank == 7
    assert RULE.when(m) is not None


@pytest.mark.parametrize(
    ("forwards", "clocks", "how"),
    [
        ([0.03] * 8, [1800.0] * 8, {}),
        ([0.03] * 7 + [0.032], [*ALL, 1650.0], {}),  # normal differences between chips of one kind
        ([0.03] * 8, [*ALL, 1200.0], {}),  # memory-bound: the forward pass does not depend on the clock
        ([0.035] * 8, [*ALL, 1650.0], {"fsdp": True}),
        ([0.035] * 8, [*ALL, 1200.0], {"fsdp": True, "samples": 5}),
        ([0.03] * 4 + [0.031] * 4, [1800.0] * 4 + [1500.0] * 4, {}),  # half of the ranks: two kinds of nodes
    ],
)
def test_healthy_ranks_have_no_straggler(forwards, clocks, how):
    assert RULE.when(clocked(forwards, clocks, **how)) is None


def traces(folder, *lengths, kernels=1):
    """Return metrics of ranks that compute `lengths` us of 100, then reduce; collectives end on all ranks at 90."""
    paths = []
    for number, length in enumerate(lengths):
        made = Made(distributedInfo={"rank": number, "world_size": len(lengths)}, deviceProperties=[GPU])
        for step in range(12):
            at = 100 * step
            made.step(step, at, at + 100)
            for part in range(kernels if number else 1):
                begin = at + 10 + part * length / kernels
                made.gpu(GEMM, begin, begin + length / (kernels if number else 1), (at + 1, at + 2))
            for part in range(3):
                begin, end = (at + 80 + 3 * part, at + 83 + 3 * part) if part else (at + 10 + length, at + 83)
                made.gpu(NCCL, begin, end, (at + 3, at + 4), stream=20, **{**ALL_REDUCE, "Group size": len(lengths)})
        paths.append(made.write(folder / f"trace_{number}.json"))
    return Metrics(load(paths))


def test_a_slow_gpu_is_seen_by_the_shortest_collectives(tmp_path):
    m = traces(tmp_path, 50, 50, 65, 50)

    assert m[stragglers.slow_gpu] == 2
    assert RULE.when(m) is not None
    assert [cause.name for cause in m[stragglers.straggler_causes]] == ["gpu"]


def test_healthy_gpus_are_not_slow(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()

    for m in (traces(tmp_path / "a", 50, 51, 50, 50), traces(tmp_path / "b", 65, 50, 50, 50, kernels=2)):
        assert m[stragglers.slow_gpu] is None  # alike; and different work, not the same work more slowly


def test_memory_of_the_fullest_rank():
    def peaks(number):
        return (MemoryFact(id=0, reserved_peak=30 if number == SLOW else 20),)

    assert metrics(*ranks(0.02, 0.02, 0.02, memory_peaks=peaks))[stragglers.memory_imbalance] == pytest.approx(0.5)
    with pytest.raises(Missing):
        metrics(*ranks(0.02, 0.02))[stragglers.memory_imbalance]


def test_pipeline_stages_are_not_stragglers():
    made = [replace(each, models=(ModelFact(id=1, parameters=each.process.rank),)) for each in ranks(0.02, 0.08)]
    with pytest.raises(Missing, match="different parts"):
        metrics(*made)[stragglers.slowest_pair]


def stacks(*lines):
    """Return stacks of ten seconds: the given seconds in each line of the loop, the rest in the backward pass."""
    backward = (("train.py", 30, "<module>", ""), ("torch/_tensor.py", 1, "Tensor.backward", "torch"))
    rows = [((("train.py", number, "<module>", ""),), "other", seconds) for number, seconds in lines]
    rows.append((backward, "backward", 10 - sum(seconds for _, seconds in lines)))
    return tuple(
        Stack(pid=1, id=number, phase=phase, steady=True, frames=frames, total=seconds, samples=round(20 * seconds))
        for number, (frames, phase, seconds) in enumerate(rows)
    )


@pytest.mark.parametrize(
    ("sampled", "line"),
    [
        ({0: stacks((9, 2)), SLOW: stacks((9, 2), (12, 6))}, 12),
        ({0: stacks((9, 2), (12, 6)), SLOW: stacks((9, 2), (12, 6))}, None),
        ({0: stacks((9, 2)), SLOW: stacks((9, 2), (12, 2))}, None),
        ({SLOW: stacks((9, 2), (12, 6))}, None),
        ({0: stacks((9, 2))}, None),
    ],
)
def test_the_line_that_delays_a_rank_is_hot_on_that_rank_alone(sampled, line):
    m = metrics(*ranks(0.02, 0.02, 0.08, phase="other", stacks=lambda number: sampled.get(number, ())))
    place = m.get(stragglers.straggler_place)
    assert (place and place.line) == line
