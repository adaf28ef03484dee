"""Sets of intervals, compared with sets of moments."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profiler.importers.intervals import Intervals, Spans, around

some = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)).map(lambda pair: (pair[0], sum(pair))), max_size=12)


def arrays(pairs):
    return np.array([a for a, _ in pairs], np.int64), np.array([b for _, b in pairs], np.int64)


def pairs(found: Spans):
    return list(zip(found.start.tolist(), found.end.tolist(), strict=True))


def moments_in(stretches):
    return {moment for start, end in stretches for moment in range(start, end)}


@given(some, some)
def test_interval_operations_match_sets_of_points(one, other):
    first, second = Intervals(*arrays(one)).spans(), Intervals(*arrays(other)).spans()
    mine, others = moments_in(one), moments_in(other)

    for found, expected in (
        (first, mine),
        (first | second, mine | others),
        (first & second, mine & others),
        (first - second, mine - others),
    ):
        assert moments_in(pairs(found)) == expected
        assert found.total == len(expected)
        assert all(a < b for a, b in pairs(found))
        assert (found.start[1:] > found.end[:-1]).all(), "those that touch are one"


@given(some, st.lists(st.integers(-1, 45), min_size=1))
def test_coverage_before_and_at_a_point(one, moments):
    found = Intervals(*arrays(one)).spans()
    asked = np.array(moments)

    assert found.covered(asked).tolist() == [
        sum(max(0, min(end, moment) - start) for start, end in pairs(found)) for moment in moments
    ]
    assert found.covers(asked).tolist() == [
        any(start <= moment < end for start, end in pairs(found)) for moment in moments
    ]


def test_clipping_to_an_interval():
    assert pairs(Intervals(*arrays([(0, 4), (6, 9)])).within(2, 7)) == [(2, 4), (6, 7)]


def test_innermost_enclosing_range_of_each_range():
    #       0: |----------|        4: |--|  (another thread)
    #       1:  |---|  3: |-|
    #       2:   |-|
    start, end = arrays([(0, 11), (1, 5), (2, 4), (12, 14), (3, 4)])
    thread = np.array([0, 0, 0, 0, 1], np.int32)

    assert around(thread, start, end).tolist() == [-1, 0, 1, -1, -1]


def test_touching_ranges_do_not_nest():
    assert around(np.zeros(3, np.int32), *arrays([(0, 10), (0, 5), (5, 10)])).tolist() == [-1, 0, 0]


def test_zero_length_ranges_nest_in_enclosing_range():
    start, end = arrays([(0, 10), (2, 2), (2, 2), (2, 5), (4, 4), (6, 6), (7, 8)])

    assert around(np.zeros(7, np.int32), start, end).tolist() == [-1, 3, 3, 0, 3, 0, 0]
