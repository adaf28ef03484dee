"""Hand-computed loader pipelines; those marked measured were run on a 2-core machine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.models.input_pipeline import (
    Workers,
    contention,
    prefetch_factor,
    supply,
    transfer_time,
)


def step_time(batch_time: float, step_time_without_wait: float, workers: int, **how: float) -> float:
    """Return the sum of both times without workers, and the longer one with them."""
    return (
        max(step_time_without_wait, supply(batch_time, workers, step_time_without_wait=step_time_without_wait, **how))
        if workers
        else batch_time + step_time_without_wait
    )


def advised(batch_time: float, step_time_without_wait: float, cores: int, worker_cpu_share: float) -> int:
    return Workers(
        batch_time=batch_time, worker_cpu_share=worker_cpu_share, cores=max(1, cores - 1), host_cores=cores
    ).number(step_time_without_wait)


@pytest.mark.parametrize(
    ("batch_time", "step_time_without_wait", "workers", "cores", "worker_cpu_share", "before", "wanted", "after"),
    [
        (0.2, 0.05, 0, 8, 1.0, 0.25, 5, 0.05),
        (0.2, 0.05, 1, 8, 1.0, 0.20, 5, 0.05),
        (0.2, 0.05, 0, 4, 1.0, 0.25, 3, 0.2 / 3),
        (0.04, 0.05, 2, 8, 1.0, 0.05, 2, 0.05),
        (0.08, 0.02, 0, 2, 0.05, 0.10, 5, 0.02),
    ],
    ids=["no workers", "one worker", "few cores", "already supplied", "sleeping workers"],
)
def test_workers_and_step_time(
    batch_time: float,
    step_time_without_wait: float,
    workers: int,
    cores: int,
    worker_cpu_share: float,
    before: float,
    wanted: int,
    after: float,
):
    assert step_time(
        batch_time, step_time_without_wait, workers, worker_cpu_share=worker_cpu_share, cores=cores
    ) == pytest.approx(before)
    assert advised(batch_time, step_time_without_wait, cores, worker_cpu_share) == wanted
    assert step_time(
        batch_time, step_time_without_wait, wanted, worker_cpu_share=worker_cpu_share, cores=cores
    ) == pytest.approx(after)


def test_an_interval_from_contention():
    times = [step_time(0.2, 0.05, 5, worker_cpu_share=1, cores=8, contention=kappa) for kappa in contention(5, 8)]
    assert times == pytest.approx([0.06, 0.05, 0.05])
    assert [step_time(0.2, 0.05, 0, worker_cpu_share=1, cores=8) / time for time in times] == pytest.approx(
        [4.17, 5, 5], abs=0.005
    )


@pytest.mark.parametrize(("threads", "after"), [(1, 0.10), (2, 0.15)])
def test_workers_and_training_share_the_cores(threads: int, after: float):
    assert step_time(0.1, 0.1, 0, worker_cpu_share=1, cores=2) == pytest.approx(0.2)
    assert step_time(0.1, 0.1, 1, worker_cpu_share=1, cores=2, threads=threads) == pytest.approx(after)


@pytest.mark.parametrize(
    ("workers", "predicted", "measured"), [(1, 0.0867, 0.0872), (2, 0.0433, 0.0425), (5, 0.0181, 0.0163)]
)
def test_measured_sleeping_workers(workers: int, predicted: float, measured: float):
    time = step_time(0.0867, 0.0181, workers, worker_cpu_share=0, cores=2)
    assert time == pytest.approx(predicted, abs=1e-4)
    assert time == pytest.approx(measured, rel=0.12)


def test_measured_workers_that_compute():
    time = step_time(0.024, 0.0076, 1, worker_cpu_share=1, cores=2, contention=1.5)
    assert time == pytest.approx(0.0361, rel=0.01)


def test_worst_contention_is_expected_without_spare_cores():
    assert contention(2, 4) == (1.5, 1.15, 1.0)
    assert contention(4, 4) == (1.5, 1.5, 1.0)
    # For workers that sleep 95 % of the time, a twentieth of 15 % is expected.
    assert contention(20, 4, worker_cpu_share=0.05) == pytest.approx((1.5, 1.0075, 1.0))


@pytest.mark.parametrize(
    ("p99", "step_time_without_wait", "workers", "wanted"), [(0.25, 0.05, 4, 2), (5.0, 0.05, 4, 8), (0.6, 0.1, 2, 4)]
)
def test_prefetch_factor_covers_a_slow_batch_within_limits(
    p99: float, step_time_without_wait: float, workers: int, wanted: int
):
    assert prefetch_factor(p99, step_time_without_wait, workers) == wanted


def test_time_to_transfer_batch_from_worker():
    assert transfer_time(3e9) == pytest.approx(1.0005)
    assert transfer_time(0, tensors=2) == transfer_time(0, tensors=0) == 0.5e-3
    assert transfer_time(0, tensors=102) == pytest.approx(17.5e-3)


def test_measured_small_files_that_two_cores_read():
    """C13: 24 ms a batch over a step of 7.6 ms, one worker at the worst contention: 36.0 predicted, 36.1 measured."""
    assert step_time(0.024, 0.0076, 1, worker_cpu_share=0, cores=2, contention=1.5) == pytest.approx(0.0360)


times = st.floats(1e-4, 1)


@given(times, times, st.integers(0, 64), st.floats(0, 1), st.integers(1, 64), st.floats(1, 1.5))
def test_no_loader_beats_its_floors(batch_time, step_time_without_wait, workers, worker_cpu_share, cores, kappa):
    time = step_time(
        batch_time, step_time_without_wait, workers, worker_cpu_share=worker_cpu_share, cores=cores, contention=kappa
    )
    assert time >= step_time_without_wait
    if workers:
        assert time >= max(batch_time / workers, batch_time * worker_cpu_share / cores)
        assert time == max(
            step_time_without_wait,
            supply(
                batch_time,
                workers,
                step_time_without_wait=step_time_without_wait,
                worker_cpu_share=worker_cpu_share,
                cores=cores,
                contention=kappa,
            ),
        )


@given(times, times, st.integers(1, 64), st.integers(1, 64), st.floats(0, 1), st.integers(1, 64))
def test_another_worker_never_slows_the_model(
    batch_time, step_time_without_wait, workers, more, worker_cpu_share, cores
):
    few, many = (
        step_time(batch_time, step_time_without_wait, w, worker_cpu_share=worker_cpu_share, cores=cores)
        for w in (workers, workers + more)
    )
    assert many <= few


@given(times, times, st.floats(0, 1), st.integers(1, 64))
def test_advised_workers_keep_up_or_fill_the_cores(batch_time, step_time_without_wait, worker_cpu_share, cores):
    wanted = advised(batch_time, step_time_without_wait, cores, worker_cpu_share)
    assert 1 <= wanted <= 4 * cores
    assert wanted == 1 or wanted * max(worker_cpu_share, 0.05) <= max(1, cores - 1) + 1e-6
    assert (
        batch_time / wanted <= step_time_without_wait * (1 + 1e-6)
        or (wanted + 1) * max(worker_cpu_share, 0.05) > max(1, cores - 1)
        or wanted == 4 * cores
    )


@pytest.mark.parametrize(
    "nonsense",
    [
        lambda: supply(1, 0, step_time_without_wait=1, worker_cpu_share=1, cores=1),
        lambda: supply(-1, 1, step_time_without_wait=1, worker_cpu_share=1, cores=1),
        lambda: step_time(1, 1, 1, worker_cpu_share=1, cores=0),
        lambda: prefetch_factor(1, 1, 0),
        lambda: transfer_time(-1),
        lambda: transfer_time(0, tensors=-1),
    ],
)
def test_nonsense_is_refused(nonsense):
    with pytest.raises(ValueError, match=r"\d"):
        nonsense()
