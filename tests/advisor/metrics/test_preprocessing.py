import pytest
from profiles import batches, metrics, rank, steps

from advisor.metrics.base import Missing
from advisor.metrics.preprocessing import epochs_begun, preprocess_share
from profiler.schema import TAG_EPOCH_START, LoaderFact, Process, RegionFact

NAMED = (RegionFact(id=1, name="preprocess", count=4, seconds=0.3), RegionFact(id=2, name="other", seconds=9.0))
FOUR = steps(*[0.2] * 4, fetch_host=0.15)


def of(number, **tables):
    return metrics(rank(**{"steps": FOUR, "loaders": (LoaderFact(id=1, num_workers=number),), **tables}))


def test_share_of_fetching_in_training_process():
    assert of(0, regions=NAMED)[preprocess_share] == pytest.approx(0.3 / 0.6)


def test_share_of_batch_time_over_all_workers():
    workers = (Process(pid=2, role="worker", started=0.0),)
    m = of(2, regions=NAMED, worker_regions=(*NAMED, *NAMED), batches=batches(*[0.2] * 5), workers=workers)

    assert m[preprocess_share] == pytest.approx(0.6 / 1.0)


def test_share_never_exceeds_one():
    assert of(0, regions=(RegionFact(id=1, name="preprocess", seconds=60.0),))[preprocess_share] == 1.0


@pytest.mark.parametrize("workers", [0, 2])
def test_share_is_missing_without_named_region(workers):
    with pytest.raises(Missing):
        of(workers, batches=batches(0.2))[preprocess_share]


def test_epochs_that_have_begun():
    tagged = (*steps(0.2, 0.2, tags=TAG_EPOCH_START), *FOUR)

    assert of(0, steps=tagged)[epochs_begun] == 2
    with pytest.raises(Missing):
        of(0)[epochs_begun]
