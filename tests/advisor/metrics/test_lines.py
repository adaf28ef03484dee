"""Places in the program's code, from stacks made by hand."""

from dataclasses import replace

import pytest
from profiles import metrics, rank
from stack_places import NORMALIZE as NORMALIZING

from advisor.metrics.base import Missing
from advisor.metrics.lines import (
    hot_place,
    hot_place_between,
    hot_places,
    interval,
    kind_of,
    places_between,
    sampled_phases,
    stack_samples,
    worker_places,
)
from advisor.runs.syntax import Syntax
from profiler.schema import Stack

MAIN = ("/home/me/train.py", 50, "main", "")
NORMALIZE = ("/home/me/train.py", 41, "normalize", "")
MEAN = ("/home/me/tools.py", 7, "mean", "")
FORWARD = ("torch/nn/modules/module.py", 1776, "Module._call_impl", "torch")
NET = ("/home/me/model.py", 12, "Net.forward", "")
BACKWARD = ("torch/_tensor.py", 623, "Tensor.backward", "torch")
ITEM = ("/home/me/data.py", 5, "D.__getitem__", "")
OPEN = ("PIL/Image.py", 3, "open", "PIL")
FETCH = ("torch/utils/data/_utils/fetch.py", 54, "_MapDatasetFetcher.fetch", "torch")
GZIP = ("gzip.py", 9, "GzipFile.read", "python")


def stack(phase, seconds, *frames, steady=True, role="rank"):
    return Stack(
        pid=1, id=0, role=role, phase=phase, steady=steady, frames=frames, total=seconds, samples=round(10 * seconds)
    )


STEP = (
    stack("forward", 10.0, MAIN, FORWARD, NET),
    stack("backward", 20.0, MAIN, BACKWARD),
)


def of(*stacks):
    return metrics(rank(stacks=stacks))


def test_a_function_that_the_loop_calls_is_named_with_its_hottest_line():
    slow = replace(stack("other", 50.0, MAIN, NORMALIZE), id=1)
    less = stack("other", 20.0, MAIN, (NORMALIZE[0], 43, "normalize", ""))
    place = of(*STEP, slow, less)[hot_place]
    assert (place.function, place.line, place.whole) == ("normalize", 41, True)
    assert place.share == pytest.approx(0.7)
    assert place.low < 0.7 < place.high


def test_what_a_function_leaves_to_another_is_named_there():
    place = of(*STEP, stack("other", 60.0, MAIN, NORMALIZE, MEAN), stack("other", 10.0, MAIN, NORMALIZE))[hot_place]
    assert (place.function, place.line) == ("mean", 7)
    assert place.share == pytest.approx(0.7)


def test_of_the_loop_itself_a_line_is_named():
    other = (MAIN[0], 60, "main", "")
    places = of(*STEP, stack("other", 40.0, MAIN), stack("other", 30.0, other, GZIP))[hot_places]
    found = {place.line: place for place in places if place.phase == "other"}
    assert {(place.function, place.whole) for place in found.values()} == {("main", False)}
    assert found[50].share == pytest.approx(0.4)
    assert (found[60].library, found[60].called) == ("gzip", "GzipFile.read")


def test_a_function_of_one_phase_alone_is_no_loop():
    (place,) = [one for one in of(*STEP)[hot_places] if one.phase == "forward"]
    assert (place.function, place.whole) == ("Net.forward", True)


def test_workers_and_what_lies_between_steps_have_places_of_their_own():
    m = of(
        *STEP,
        stack("fetch", 9.0, FETCH, ITEM, OPEN, role="worker"),
        stack("idle", 90.0, FETCH, role="worker"),
        stack("checkpoint_save", 30.0, MAIN, steady=False),
    )
    (worker,) = m[worker_places]
    assert (worker.function, worker.library, worker.share) == ("D.__getitem__", "PIL", 1.0)
    (saving,) = m[places_between]
    assert (saving.phase, saving.share) == ("checkpoint_save", 0.5)
    assert m[stack_samples] == 300


def test_without_stacks_the_remedy_says_how_to_get_them():
    with pytest.raises(Missing) as missing:
        of()[hot_place]
    assert "doctor" in missing.value.remedy


@pytest.mark.parametrize(("share", "count"), [(0.2, 40), (0.0, 10), (1.0, 10), (0.5, 0)])
def test_the_interval_holds_the_share(share, count):
    low, high = interval(share, count)
    assert 0.0 <= low <= share <= high <= 1.0


def test_the_interval_of_forty_samples():
    assert interval(0.2, 40) == pytest.approx((0.105, 0.347), abs=0.001)


@pytest.mark.parametrize(
    ("place", "around", "forwards", "kind"),
    [
        ({}, None, 0.0, ""),
        ({}, Syntax(loop=True), 0.0, "loop"),
        ({"own": 0.5}, Syntax(loop=True), 0.0, ""),  # it calls other functions of the program
        ({"called": "Module._call_impl"}, Syntax(loop=True), 0.0, ""),
        ({"phase": "backward"}, Syntax(loop=True), 0.0, ""),
        ({"whole": False}, Syntax(loop=True), 0.0, ""),
        ({}, Syntax(generator=True), 0.0, "generator"),
        ({}, Syntax(calls=frozenset(("sleep", "time.sleep"))), 0.0, "sleep"),
        ({"own": 0.5}, Syntax(calls=frozenset(("time.sleep",))), 0.0, ""),
        ({}, Syntax(calls=frozenset(("item",))), 0.0, "values"),
        ({"library": "PIL"}, None, 0.0, "PIL"),
        ({"library": "transformers"}, None, 0.0, "tokenizers"),
        ({"phase": "forward"}, Syntax(loop=True, one_row=True, no_grad=True), 40.0, "one_row"),
        ({"phase": "forward"}, Syntax(loop=True, no_grad=True), 40.0, "evaluation"),
        ({"phase": "forward", "called": "Module._call_impl"}, Syntax(loop=True, no_grad=True), 2.0, ""),
    ],
)
def test_a_place_has_the_kind_that_its_frames_and_source_show(place, around, forwards, kind):
    assert kind_of(replace(NORMALIZING, **place), around, forwards) == kind


def test_a_place_has_its_part_of_what_falls_between_steps():
    m = of(
        *STEP,
        stack("other", 50.0, MAIN, NORMALIZE),
        stack("evaluation", 6.0, MAIN, NORMALIZE, steady=False),
        stack("checkpoint_save", 2.0, MAIN, steady=False),
        stack("other", 9.0, MAIN, NORMALIZE, steady=False),
    )
    assert m[hot_place_between] == pytest.approx(0.75)
    assert m[sampled_phases] == pytest.approx({"forward": 0.125, "backward": 0.25, "other": 0.625})
