from dataclasses import replace

import pytest
from profiles import RUN, metrics, rank, steps

from advisor.metrics.base import Missing
from advisor.metrics.host import (
    cores_allowed,
    cores_available,
    cores_per_rank,
    cpu_saturation,
    host_memory_available,
    host_rss,
    leading_up_share,
    local_ranks,
    output_share,
    process_cpu,
    worker_cpu,
    writes_per_step,
)
from profiler.schema import HostSample, LoaderFact, OutputFact

FORTY = steps(*[0.1] * 40)


def test_cores_are_shared_by_the_ranks_of_a_node():
    alone = metrics(rank(steps=FORTY))
    two = metrics(rank(0, steps=FORTY), rank(1, steps=FORTY))
    elsewhere = metrics(rank(0, steps=FORTY), rank(1, steps=FORTY, process={"node_rank": 1}))

    assert (alone[cores_per_rank], alone[cores_available]) == (8.0, 7)
    assert (two[local_ranks], two[cores_per_rank], two[cores_available]) == (2, 4.0, 3)
    assert elsewhere[local_ranks] == 1


@pytest.mark.parametrize(
    ("mine", "bound", "allowed"),
    [
        (4.0, ("0-3", "4-7"), 8.0),  # the recorder of each rank reports only its own cores
        (8.0, ("0-7", "0-7"), 8.0),  # nothing is bound
        (2.0, ("0-7", "0-7"), 2.0),  # a shared quota for both
    ],
)
def test_allowed_cores_combine_recorders_of_all_ranks(mine, bound, allowed):
    ranks = [rank(number, steps=FORTY, process={"cpus": cpus}) for number, cpus in enumerate(bound)]
    m = metrics(*ranks, runs=(replace(RUN, cores=mine),) * 2)

    assert (m[cores_allowed], m[cores_per_rank]) == (allowed, allowed / 2)


def test_one_core_is_always_left_for_a_worker():
    assert metrics(*(rank(n, steps=FORTY) for n in range(8)))[cores_available] == 1


def test_cpu_saturation_accounts_for_steal_time():
    samples = (HostSample(time=2.0, cpu=6.0, steal=4.0),)  # a quarter of the machine's 16 cores is stolen

    assert metrics(rank(steps=FORTY), host_samples=samples)[cpu_saturation] == pytest.approx(1.0)


def test_only_the_steady_part_counts():
    samples = (HostSample(time=0.5, cpu=8.0), HostSample(time=2.0, cpu=2.0, count=3), HostSample(time=3.0, cpu=6.0))

    assert metrics(rank(steps=FORTY), host_samples=samples)[cpu_saturation] == pytest.approx(3.0 / 8)


def test_workers_and_training_apart():
    m = metrics(rank(steps=FORTY), host_samples=(HostSample(time=2.0, cpu=3.0, cpu_workers=2.0),))

    assert (m[worker_cpu], m[process_cpu]) == (2.0, 1.0)


def test_memory_at_its_worst():
    samples = (HostSample(time=0.5, rss=9, memory_available=5), HostSample(time=2.0, rss=7, memory_available=6))
    m = metrics(rank(steps=FORTY), host_samples=samples)

    assert (m[host_rss], m[host_memory_available]) == (9, 5)


@pytest.mark.parametrize("metric", [cpu_saturation, process_cpu, host_rss, host_memory_available])
def test_not_sampled(metric):
    with pytest.raises(Missing):
        metrics(rank(steps=FORTY))[metric]


def test_writing():
    m = metrics(rank(steps=FORTY, output=OutputFact(writes=60, seconds=0.3, steps=30)))

    assert m[output_share] == pytest.approx(0.1)
    assert m[writes_per_step] == 2.0


@pytest.mark.parametrize(("leading_up", "share"), [(0.6, 0.2), (1.5, 0.4)], ids=["timed", "limited to the phase other"])
def test_time_leading_up_to_logging(leading_up, share):
    output = OutputFact(seconds=0.3, leading_up=leading_up, steps=30)

    assert metrics(rank(steps=steps(*[0.1] * 40, other=0.05), output=output))[leading_up_share] == pytest.approx(share)


def test_time_leading_up_to_logging_is_missing_in_old_recordings():
    with pytest.raises(Missing, match="not timed"):
        metrics(rank(steps=FORTY, output=OutputFact(seconds=0.3, steps=30)))[leading_up_share]


def test_writes_to_workers_and_other_ranks_are_not_logging():
    output = OutputFact(writes=600, steps=30)
    for m in (
        metrics(rank(steps=FORTY, output=output, loaders=(LoaderFact(id=1, num_workers=2),))),
        metrics(rank(steps=FORTY, output=output, process={"world_size": 2})),
    ):
        with pytest.raises(Missing, match="other processes"):
            m[writes_per_step]


def test_writes_are_missing_if_not_observed():
    for output in (None, OutputFact(), OutputFact(steps=30)):
        with pytest.raises(Missing):
            metrics(rank(steps=FORTY, output=output))[writes_per_step]
