"""A trace and a window of our own are understood alike: the recorder's parser is the reference."""

from __future__ import annotations

from collections import Counter

import pytest
from traces_made import DTOH, GEMM, HTOD, KERNEL, NCCL, Made
from traces_real import GPU

from profiler.importers.analysis import analyse
from profiler.recorder import kernels

TICK = 2.4e-7
"""Seconds to which the recorder's times are exact: it keeps those of the trace, since 1970, in double precision."""


def compare(path):
    found = analyse(path)
    window, rows, operators = kernels.parse(path, pid=0, position=0, start=0.0, steps=1, cost=0.0)
    for name in type(window).__slots__:
        if name not in ("start", "events"):
            expected = getattr(window, name)
            if isinstance(expected, str):
                assert getattr(found.window, name) == expected
                continue
            assert getattr(found.window, name) == pytest.approx(expected, rel=1e-3, abs=10 * TICK), name
    compare_sums(rows, found.kernels, lambda row: (row.name, row.kind, row.device, row.tensor_cores, row.dtype))
    dear = by_shape(operators), by_shape(found.operators)
    least = max((rows[-1].total for rows in (operators, found.operators) if rows), default=0.0)
    for mine, other in (dear, dear[::-1]):
        # The last of those that are kept may be others of equal time.
        assert [row for key, row in mine.items() if key not in other and row.total > least + 1e-5] == []
    both = dear[0].keys() & dear[1].keys()
    compare_sums(*([row for key, row in rows.items() if key in both] for rows in dear), shaped)


def shaped(row):
    return row.name, row.inputs, row.dtype, row.device


def by_shape(operators):
    return {shaped(row): row for row in operators}


def compare_sums(theirs, ours, key):
    calls, seconds = Counter(), Counter()
    for rows, sign in ((theirs, 1), (ours, -1)):
        for row in rows:
            calls[key(row)] += sign * row.calls
            seconds[key(row)] += sign * row.total
    assert {row: number for row, number in calls.items() if number} == {}
    most = {key(row): TICK * (1 + row.calls) + 1e-3 * row.total for row in theirs}
    assert {row: off for row, off in seconds.items() if abs(off) > most[row]} == {}


@pytest.mark.parametrize("name", GPU)
def test_of_real_traces(real, name):
    compare(real(name))


def test_of_one_made_by_hand(tmp_path):
    made = Made()
    for number in range(4):
        at = 200 * number
        made.step(number, at, at + 200)
        made.host("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at, at + 20, "user_annotation")
        made.gpu(HTOD, at + 15, at + 30, (at + 12, at + 14), api="cudaMemcpyAsync")
        made.host("aten::mm", at + 30, at + 36, **{"Input Dims": [[8, 16], [16, 4]], "Input type": ["float", "float"]})
        made.gpu(GEMM, at + 40, at + 90, (at + 31, at + 33))
        made.gpu(NCCL, at + 80, at + 120, (at + 50, at + 51), stream=20)
        made.gpu(DTOH, at + 130, at + 134, (at + 60, at + 140), api="cudaMemcpyAsync")
        made.host("Optimizer.step#Adam.step", at + 150, at + 190, "user_annotation")
        made.gpu(KERNEL, at + 170, at + 215, (at + 160, at + 161))

    compare(made.write(tmp_path / "t.json"))
