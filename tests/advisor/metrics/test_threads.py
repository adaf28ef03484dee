from dataclasses import replace

import pytest
from profiles import RUN, metrics, rank, steps

from advisor.metrics.base import Missing
from advisor.metrics.threads import (
    best_threads,
    compute_fraction,
    cores_for_threads,
    largest_matmul,
    thread_demand,
    thread_gain,
    thread_probe,
    threads_from,
    threads_to_try,
)
from profiler.schema import FlagsFact, HostSample, MatmulFact, ModelFact, ThreadsFact

ON_CPU = (ModelFact(id=1, devices={"cpu": 10}),)
FORTY = steps(*[0.1] * 40, forward=0.03, backward=0.05, optimizer=0.01, other=0.01)
ONE = FlagsFact(threads=1, threads_from="environment")


def of(ranks=1, cores=8.0, workers=0.0, **tables):
    each = {"steps": FORTY, "models": ON_CPU, "flags": ONE, **tables}
    sample = HostSample(time=1.0, cpu=1.0, cpu_workers=workers)
    run = replace(RUN, cores=cores)
    return metrics(*[rank(number, **each) for number in range(ranks)], runs=(run,), host_samples=(sample,))


def test_tries_powers_of_two_core_count_and_current_number():
    default = FlagsFact(threads=64, threads_from="default")

    assert of()[threads_to_try] == (1, 2, 4, 8)
    assert of(cores=6.0)[threads_to_try] == (1, 2, 4, 6)
    assert of(cores=6.5, flags=default)[threads_to_try] == (1, 2, 4, 6, 64)
    assert of(ranks=2, flags=default)[threads_to_try] == (1, 2, 4, 64)


def test_cores_used_by_workers_are_not_available_for_threads():
    m = of(workers=5.5)

    assert m[cores_for_threads] == 2
    assert m[threads_to_try] == (1, 2)
    assert of(workers=8.0)[cores_for_threads] == 1


def test_no_thread_counts_to_try_without_choice():
    assert of(cores=1.0)[threads_to_try] == ()
    assert of(flags=FlagsFact(threads=1, threads_from="program"))[threads_to_try] == ()
    assert of(models=(ModelFact(id=1, devices={"cuda:0": 10}),))[threads_to_try] == ()


def test_best_is_smallest_of_similarly_fast_counts():
    m = of(threads=ThreadsFact(seconds={1: 0.8, 2: 0.41, 4: 0.4, 8: 0.5}))

    assert m[best_threads] == 2
    assert m[thread_gain] == pytest.approx(0.8 / 0.41)


def test_best_count_does_not_exceed_cores():
    m = of(
        cores=2.0, flags=FlagsFact(threads=8, threads_from="default"), threads=ThreadsFact(seconds={1: 2, 2: 3, 8: 1})
    )

    assert m[best_threads] == 1
    assert m[thread_gain] == 0.5
    assert m[thread_demand] == 8


def test_ranks_share_the_machine():
    assert of(ranks=4, flags=FlagsFact(threads=4, threads_from="default"))[thread_demand] == 16


def test_compute_fraction_is_forward_backward_and_optimizer():
    assert of()[compute_fraction] == pytest.approx(0.9)


@pytest.mark.parametrize(
    "seconds",
    [{}, {2: 0.1}, {1: 0.0, 2: 0.1}],
    ids=["no timings", "no timing of the current number", "a timing of zero"],
)
def test_thread_gain_is_missing_without_usable_probe(seconds):
    with pytest.raises(Missing):
        of(threads=ThreadsFact(seconds=seconds))[thread_gain]


@pytest.mark.parametrize("metric", [thread_probe, largest_matmul, best_threads])
def test_what_was_not_measured_is_missing(metric):
    with pytest.raises(Missing):
        of()[metric]


def test_threads_from_is_missing_if_unknown():
    with pytest.raises(Missing):
        of(flags=FlagsFact(threads=1))[threads_from]


def test_largest_matmul():
    fact = MatmulFact(rows=4, inputs=8, outputs=16)

    assert of(matmul=fact)[largest_matmul] is fact
