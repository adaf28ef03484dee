"""Comparison of functions of two runs, from stacks made by hand."""

import json

import pytest
from profiles import metrics, rank, steps

from advisor.compare.change import ChangeVerdict
from advisor.compare.comparison import compare
from profiler.schema import Stack

LOSS = ("torch/nn/functional.py", 3, "cross_entropy", "torch")


def stack(number, seconds, *frames, phase="other"):
    return Stack(
        pid=1, id=number, role="rank", phase=phase, steady=True, frames=frames, total=seconds, samples=round(seconds)
    )


def run(mean, *stacks):
    return metrics(rank(steps=steps(*[mean, 1.01 * mean] * 70), stacks=stacks))


def main(line):
    return ("/home/me/train.py", line, "main", "")


def helper(line, file="/home/me/tools.py"):
    return (file, line, "normalize", "")


def test_function_that_grew_comes_first_with_line_in_each_run():
    before = run(0.1, stack(0, 80.0, main(5), LOSS), stack(1, 20.0, main(9), helper(7)))
    moved = helper(12, "/tmp/branch/tools.py")
    after = run(0.2, stack(0, 80.0, main(6), LOSS), stack(1, 120.0, main(10), moved))

    first, second = compare(before, after).functions

    assert (first.function, first.phase) == ("normalize", "other")
    assert (first.before.line, first.after.line) == (7, 12)
    assert first.before.seconds == pytest.approx(0.02, rel=0.01)
    assert first.change.estimate == pytest.approx(1.0, rel=0.01)
    assert first.verdict is ChangeVerdict.WORSE
    assert (second.function, second.verdict) == ("main", ChangeVerdict.UNCLEAR)


def test_a_function_that_is_gone_is_not_seen_in_the_second_run():
    before = run(0.1, stack(0, 50.0, main(5), LOSS), stack(1, 50.0, main(9), helper(7)))
    found = compare(before, run(0.05, stack(0, 50.0, main(5), LOSS))).functions

    assert (found[0].function, found[0].after, found[0].verdict) == ("normalize", None, ChangeVerdict.BETTER)


def test_few_samples_show_differences_without_verdict():
    found = compare(run(0.1, stack(0, 20.0, main(5))), run(0.1, stack(0, 20.0, helper(5)))).functions

    assert {row.verdict for row in found} == {ChangeVerdict.TOO_FEW}


def test_without_stacks_there_are_no_functions():
    assert compare(run(0.1), run(0.1, stack(0, 50.0, main(5)))).functions == ()


def test_functions_are_in_the_json():
    runs = run(0.1, stack(0, 50.0, main(5))), run(0.1, stack(0, 50.0, main(5)))
    (made,) = json.loads(json.dumps(compare(*runs).result()))["functions"]

    assert made["after"] == {"file": "/home/me/train.py", "line": 5, "seconds": pytest.approx(0.1, rel=0.01)}
    assert made["verdict"] == "unclear"  # fifty samples determine a share to within 7 %
