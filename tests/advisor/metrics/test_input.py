from dataclasses import replace

import pytest
from profiles import batches, metrics, rank, steps

from advisor.metrics.base import Missing
from advisor.metrics.input import (
    _UNTIMED,
    batch_bytes,
    batch_tensors,
    batch_time,
    batch_time_p99,
    collate_share,
    compute_threads,
    epoch_restart_share,
    epoch_start_seconds,
    files_per_sample,
    loader,
    loaders_made,
    queue_depth,
    queue_empty_fraction,
    step_time_without_wait,
    wait_without_preparing,
    worker_cpu_share,
    worker_demand,
    worker_efficiency,
    workers_are_behind,
)
from profiler.quantile_sketch import Quantiles
from profiler.schema import TAG_EPOCH_START, TAG_FIRST, Batch, HostSample, LoaderFact, Place

TRAINING = LoaderFact(id=1, num_workers=2, training=True, batch_bytes=4096)
FORTY = steps(*[0.1] * 40, batches=1.0, data_wait=0.04, fetches_empty=0.5, queue_depth=1.5)


def of(made=(), facts=(TRAINING,), **tables):
    host = tables.pop("host_samples", ())
    return metrics(rank(**{"steps": FORTY, "loaders": facts, "batches": made, **tables}), host_samples=host)


def test_selects_training_loader_with_most_batches():
    validation = LoaderFact(id=2, training=False)
    other = LoaderFact(id=3, training=True)
    made = (*batches(0.1, 0.1), *batches(0.1, loader=3), *batches(*[0.1] * 9, loader=2))

    assert of(made, (validation, other, TRAINING))[loader] is TRAINING


def test_known_training_loader_is_preferred_to_unknown():
    unknown = LoaderFact(id=3)

    assert of(batches(*[0.1] * 9, loader=3), (unknown, TRAINING))[loader] is TRAINING


def test_counts_loaders_recreated_in_same_place():
    here, there = Place(file="train.py", line=7), Place(file="train.py", line=8)
    recreated = tuple(LoaderFact(id=n, place=here, training=True) for n in range(3))
    validation = (LoaderFact(id=8, place=here, training=False), LoaderFact(id=9, place=there, training=True))

    assert of(facts=(*recreated, *validation))[loaders_made] == 3
    assert of(facts=(TRAINING, LoaderFact(id=2, training=True)))[loaders_made] == 1, "its place is unknown"


def test_without_a_loader_there_is_a_remedy():
    with pytest.raises(Missing) as caught:
        of(facts=())[loader]

    assert caught.value.remedy


def test_time_and_cpu_of_a_batch():
    m = of(batches(*[0.1] * 20, *[0.3] * 20, collate=0.02, files=8.0))

    assert m[batch_time] == pytest.approx((10 * 0.1 + 20 * 0.3) / 30)  # from 1 s on, where steps are steady
    assert m[worker_cpu_share] == pytest.approx(0.5)
    assert m[collate_share] == pytest.approx(0.02 / m[batch_time])
    assert m[files_per_sample] == pytest.approx(2.0)
    assert m[worker_demand] == pytest.approx(1.0)


@pytest.mark.parametrize(("workers", "seconds", "beside"), [(0, 0.03, 0.01), (0, 0.05, 0.0), (2, 0.03, 0.0)])
def test_wait_without_batch_preparation(workers, seconds, beside):
    m = of(batches(*[seconds] * 40), facts=(replace(TRAINING, num_workers=workers),))
    assert m[wait_without_preparing] == pytest.approx(beside)


def test_merged_batches_are_weighted_by_count():
    one = Batch(pid=2, loader=1, start=2.0, duration=0.1, cpu=0.1, collate=0.0, samples=1.0)
    three = replace(one, start=2.5, duration=0.5, count=3)

    assert of((one, three))[batch_time] == pytest.approx(0.4)


def test_other_loaders_batches_are_not_counted():
    with pytest.raises(Missing, match="not timed"):
        of(batches(0.1, loader=7))[batch_time]


def test_the_slowest_batches():
    assert of(batches(*[0.1] * 39, 0.9))[batch_time_p99] == 0.9


def test_p99_of_merged_batches_uses_sketches_of_all_workers():
    first, second = Quantiles(), Quantiles()
    first.extend([0.1] * 98)
    second.extend([0.1] * 98 + [0.8] * 4)
    sketches = (first.to_sketch(2, "batch"), second.to_sketch(3, "batch"))
    made = batches(*[0.1] * 40, count=5)

    assert of(made, sketches=sketches)[batch_time_p99] == pytest.approx(0.8, rel=0.01)


def test_the_step_without_its_wait():
    assert of()[step_time_without_wait] == pytest.approx(0.06)


def test_the_queue():
    m = of()

    assert m[queue_depth] == 1.5
    assert m[queue_empty_fraction] == 0.5


def test_tensors_of_a_batch():
    assert of(facts=(replace(TRAINING, batch_tensors=300),))[batch_tensors] == 300
    with pytest.raises(Missing, match="not counted"):
        of()[batch_tensors]


def test_no_workers_no_queue():
    with pytest.raises(Missing):
        of(steps=steps(*[0.1] * 40))[queue_depth]


def test_queue_empty_fraction_is_missing_without_fetches():
    with pytest.raises(Missing):
        of(steps=steps(*[0.1] * 40, batches=0.0, fetches_empty=0.0))[queue_empty_fraction]


def test_two_workers_that_never_rest():
    m = of(batches(*[0.2] * 40))  # a batch takes 0.2 s, and one begins every 0.1 s

    assert m[worker_efficiency] == pytest.approx(1.0)


def test_workers_that_rest_most_of_the_time():
    assert of(batches(*[0.02] * 40))[worker_efficiency] == pytest.approx(0.1)


def test_no_workers_no_efficiency():
    with pytest.raises(Missing):
        of(batches(0.1), (LoaderFact(id=1),))[worker_efficiency]


def test_size_of_a_batch():
    assert of()[batch_bytes] == 4096
    with pytest.raises(Missing):
        of(facts=(LoaderFact(id=1),))[batch_bytes]


def test_compute_threads_exclude_workers():
    samples = (HostSample(time=2.0, cpu=1.6, cpu_workers=1.0),)

    assert of(host_samples=samples)[compute_threads] == pytest.approx(1.0)  # 0.6 cores x 0.1 s in 0.06 s


def test_compute_threads_exclude_batch_preparation():
    """0.04 s of 0.1 wait for a batch that takes 0.02 s of CPU: 0.62 x 0.1 - 0.02 = 0.042 s in the other 0.06 s."""
    samples = (HostSample(time=2.0, cpu=0.62, cpu_workers=0.0),)
    m = of(batches(*[0.04] * 40), (LoaderFact(id=1),), host_samples=samples)

    assert m[compute_threads] == pytest.approx(0.7)


def test_starts_of_epochs():
    first = steps(0.1, tags=TAG_FIRST | TAG_EPOCH_START, epoch_start=0.9)
    plain = steps(*[0.1] * 38, start=1.0, epoch_start=0.0)
    again = steps(0.1, start=4.8, tags=TAG_EPOCH_START, epoch_start=0.1)
    m = of(steps=(*first, *plain, *again))

    assert m[epoch_start_seconds] == pytest.approx(0.5)
    assert m[epoch_restart_share] == pytest.approx(0.1 / 5.0)


def test_a_run_that_begins_after_its_first_epoch_has_only_restarts():
    again = steps(0.1, start=4.0, tags=TAG_EPOCH_START, epoch_start=0.1)
    m = of(steps=(*FORTY, *again))

    assert m[epoch_restart_share] == pytest.approx(0.1 / 4.2)


def test_restart_share_is_missing_without_epoch_start():
    with pytest.raises(Missing):
        of()[epoch_restart_share]


def test_files_are_counted_in_workers_only_and_the_remedy_says_so():
    with pytest.raises(Missing, match="has none") as caught:
        of(batches(*[0.1] * 40), (replace(TRAINING, num_workers=0),))[files_per_sample]
    assert "num_workers=1" in caught.value.remedy
    with pytest.raises(Missing) as caught:
        of(batches(*[0.1] * 40))[files_per_sample]
    assert caught.value.remedy == _UNTIMED[1]


@pytest.mark.parametrize(
    ("workers", "empty", "behind"), [(2, 0.5, True), (2, 0.49, False), (0, 1.0, False), (2, None, False)]
)
def test_workers_are_behind_if_half_of_the_fetches_find_no_batch(workers, empty, behind):
    made = steps(*[0.1] * 40, batches=1.0, data_wait=0.04, fetches_empty=empty)

    assert of(facts=(replace(TRAINING, num_workers=workers),), steps=made)[workers_are_behind] is behind
