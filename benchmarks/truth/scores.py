"""Results of the rows, and the bars that they are compared with."""

from dataclasses import dataclass, field
from statistics import median

import seen as judging
from seen import Seen
from table import Row

from advisor.judging.calibration import Record

TOP_1 = 0.95
"""Least share of the sick rows' runs in which the right advice comes first."""
ALARMS = 0
"""Most runs of healthy rows with anything above information, and most runs with a rule that must not be there."""
COVERAGE = 0.80
"""Least share of the predicted intervals, from the 10th to the 90th percentile, that contain the measured gain."""
ERROR = 0.10
"""Largest median of |predicted - measured|, as a share of the step time."""


@dataclass
class RowResult:
    """Results of one row."""

    row: Row
    cores: int
    runs: list[Seen] = field(default_factory=list)
    skipped: str | None = None
    failed: str | None = None
    again: int = 0
    """Runs of a healthy row that were repeated because their steps scattered."""
    seconds: float = 0.0
    """Seconds that its last recording took."""
    before: list[float] = field(default_factory=list)
    """Seconds per step, without the cure (`before`) and with it (`after`)."""
    after: list[float] = field(default_factory=list)

    @property
    def hits(self):
        return sum(judging.is_hit(self.row, each) for each in self.runs)

    @property
    def forbidden(self):
        """Return what must not be advised but was, one list per run."""
        return [judging.forbidden(self.row, each, self.cores) for each in self.runs]

    @property
    def measured(self):
        """Return the share of the step time that the cure removed, by the medians; None if it was not measured."""
        return 1 - median(self.after) / median(self.before) if self.before and self.after else None

    @property
    def predicted(self):
        """Return low, expected and high of the first right run's first advice alone, because only its cure was
        measured."""
        right = (each.gains.get(each.first) for each in self.runs if judging.is_hit(self.row, each))
        return next((gain for gain in right if gain), None)

    @property
    def record(self):
        """Return the prediction and the measured gain; None unless there are both."""
        if self.predicted is None or self.measured is None:
            return None
        return Record(self.row.id, self.predicted, self.measured)


@dataclass(frozen=True)
class Bar:
    name: str
    value: float
    bar: float
    at_least: bool
    of: int
    """Number of results that the value comes from."""

    @property
    def verdict(self):
        """Return whether the bar is met; an empty set counts as not measured."""
        if not self.of:
            return "not measured"
        kept = self.value >= self.bar if self.at_least else self.value <= self.bar
        return "pass" if kept else "missed"


def bars(results):
    """Return the bars of all rows that were run."""
    sick = [each for each in results if not each.row.healthy]
    hits = [judging.is_hit(each.row, run) for each in sick for run in each.runs]
    alarms = [bool(run.above) for each in results if each.row.healthy for run in each.runs]
    forbidden = [bool(found) for each in results for found in each.forbidden]
    records = [each.record for each in sick if each.record]
    held, errors = [record.inside for record in records], [record.error for record in records]
    return [
        Bar("right advice comes first", _mean(hits), TOP_1, True, len(hits)),
        Bar("alarms in healthy runs", sum(alarms), ALARMS, False, len(alarms)),
        Bar("runs with forbidden advice", sum(forbidden), ALARMS, False, len(forbidden)),
        Bar("intervals that contain the measured gain", _mean(held), COVERAGE, True, len(records)),
        Bar("median error of predictions", median(errors or [0.0]), ERROR, False, len(records)),
    ]


def _mean(each):
    return sum(each) / len(each) if each else 0.0
