from dataclasses import replace

import pytest
from profiles import metrics, rank, steps

from advisor.metrics.base import Missing
from advisor.metrics.between import checkpoint_interval, checkpoint_save_uncertainty
from profiler.schema import TAG_CHECKPOINT


def saves(*times):
    """Return metrics of forty steps of 0.1 s, with a save after every tenth."""
    made = list(steps(*[0.1] * 40, checkpoint_save=0.0))
    for number, time in enumerate(times):
        made[10 * number + 9] = replace(made[10 * number + 9], checkpoint_save=time, tags=TAG_CHECKPOINT)
    return metrics(rank(steps=tuple(made)))


def test_work_between_two_saves():
    assert saves(0.1, 0.3, 0.2, 0.2)[checkpoint_interval] == pytest.approx(1.0)


def test_standard_error_of_a_save():
    # deviations -0.1, 0.1, 0, 0: s = sqrt(0.02 / 3), over sqrt(4), over 0.2
    assert saves(0.1, 0.3, 0.2, 0.2)[checkpoint_save_uncertainty] == pytest.approx(0.2041, abs=1e-4)


def test_two_saves_have_no_spread():
    with pytest.raises(Missing, match="Fewer than 3"):
        saves(0.1, 0.3)[checkpoint_save_uncertainty]


def test_without_a_save_there_is_no_interval():
    with pytest.raises(Missing, match="No checkpoint"):
        saves()[checkpoint_interval]
