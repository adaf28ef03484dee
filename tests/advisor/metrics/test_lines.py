"""Places in the program's code, from stacks made by hand."""

import os
from dataclasses import replace

import pytest
from profiles import RUN, metrics, rank, steps
from stack_places import NORMALIZE as NORMALIZING

from advisor.metrics.base import Missing
from advisor.metrics.lines import (
    anomaly_place,
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
from profiler.schema import TAG_EVALUATION, Stack

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


def test_callee_that_takes_most_of_the_time_is_named():
    place = of(*STEP, stack("other", 60.0, MAIN, NORMALIZE, MEAN), stack("other", 10.0, MAIN, NORMALIZE))[hot_place]
    assert (place.function, place.line) == ("mean", 7)
    assert place.share == pytest.approx(0.7)


def test_function_is_named_with_callee_that_takes_over_half():
    rest = (NORMALIZE[0], 48, "normalize", "")
    place = of(*STEP, stack("other", 40.0, MAIN, NORMALIZE, MEAN), stack("other", 30.0, MAIN, rest))[hot_place]
    assert (place.outer, place.function, place.line) == ("normalize", "mean", 7)
    assert place.inner == pytest.approx(4 / 7)
    assert place.share == pytest.approx(0.7)
    assert (place.name.split()[0], place.name.split()[-1]) == ("normalize(),", "mean()")


def test_hottest_line_selects_library():
    loads = ("json/__init__.py", 346, "loads", "python")
    rest = (NORMALIZE[0], 44, "normalize", "")
    end = (NORMALIZE[0], 46, "normalize", "")
    gzip = stack("other", 25.0, MAIN, NORMALIZE, GZIP)
    m = of(*STEP, gzip, stack("other", 15.0, MAIN, rest, loads), stack("other", 12.0, MAIN, end))
    assert (m[hot_place].line, m[hot_place].library, m[hot_place].kind) == (41, "gzip", "gzip")


def test_line_that_only_calls_a_function_is_not_hottest():
    calling = (NORMALIZE[0], 44, "normalize", "")
    place = of(*STEP, stack("other", 30.0, MAIN, calling, MEAN), stack("other", 25.0, MAIN, NORMALIZE), *_others(14.0))[
        hot_place
    ]
    assert (place.function, place.line) == ("normalize", 41)


def _others(seconds):
    return [stack("other", seconds, MAIN, NORMALIZE, (MEAN[0], line, f"f{line}", "")) for line in (1, 2)]


def test_line_in_loop_is_preferred_among_similarly_hot_lines(tmp_path):
    path = tmp_path / "data.py"
    path.write_text("def item(i):\n    for at in range(i):\n        work(at)\n    return torch.tensor(found)\n")
    os.utime(path, (0, 0))
    convert, work = (str(path), 4, "item", ""), (str(path), 3, "item", "")
    place = metrics(
        rank(stacks=(*STEP, stack("other", 40.0, MAIN, convert), stack("other", 30.0, MAIN, work))), runs=(RUN,)
    )[hot_place]
    assert (place.line, place.kind) == (3, "loop")
    place = metrics(
        rank(stacks=(*STEP, stack("other", 60.0, MAIN, convert), stack("other", 30.0, MAIN, work))), runs=(RUN,)
    )[hot_place]
    assert (place.line, place.kind) == (4, "lists")


def test_secret_like_names_do_not_hide_loop(tmp_path):
    path = tmp_path / "data.py"
    path.write_text(
        "def item(t):\n    tokens = [t(x) for x in 'abc'] if t else None\n    for x in tokens:\n        f(x)\n"
    )
    os.utime(path, (0, 0))
    rows = stack("other", 40.0, MAIN, (str(path), 4, "item", ""))
    assert metrics(rank(stacks=(*STEP, rows)), runs=(RUN,))[hot_place].kind == "loop"


def test_freeing_on_return_counts_for_called_function():
    call, other = (MAIN[0], 51, "main", ""), (MAIN[0], 52, "main", "")
    rows = stack("other", 50.0, call, NORMALIZE), stack("other", 15.0, call), stack("other", 5.0, other)
    first, *rest = of(*STEP, *rows)[hot_places]
    assert (first.function, first.share, first.own) == ("normalize", pytest.approx(0.65), 1.0)
    assert [place.line for place in rest if place.phase == "other"] == [52]


def test_lines_of_the_loop_that_call_one_library_are_one_place():
    rows = [
        stack("other", 20.0 + line, (MAIN[0], line, "main", ""), ("matplotlib/figure.py", 9, "savefig", "matplotlib"))
        for line in (60, 61, 62)
    ]
    place = of(*STEP, *rows)[hot_place]
    assert (place.line, place.whole, place.kind) == (62, False, "matplotlib")
    assert place.share == pytest.approx(243 / 273)


def test_checkpoint_save_is_between_steps_regardless_of_clock():
    m = of(*STEP, stack("checkpoint_save", 30.0, MAIN))
    assert m[stack_samples] == 300
    (saving,) = m[places_between]
    assert (saving.phase, saving.share) == ("checkpoint_save", 0.5)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("import torch\ntorch.autograd.set_detect_anomaly(True)\n", 2),
        ("def f():\n    # no detect_anomaly here\n    with torch.autograd.detect_anomaly():\n        pass\n", 3),
        ("from torch.autograd import detect_anomaly\n", None),
        ("torch.autograd.set_detect_anomaly(False)\n", None),
    ],
)
def test_the_line_that_turns_anomaly_detection_on_is_found_in_sampled_files(tmp_path, text, line):
    path = tmp_path / "train.py"
    path.write_text(text)
    os.utime(path, (0, 0))
    m = metrics(rank(stacks=(stack("other", 9.0, (str(path), 1, "main", "")),)), runs=(RUN,))
    assert m.get(anomaly_place) == (line and (str(path), line))


def test_a_file_that_changed_since_the_run_shows_no_line(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("torch.autograd.set_detect_anomaly(True)\n")
    m = metrics(rank(stacks=(stack("other", 9.0, (str(path), 1, "main", "")),)), runs=(replace(RUN, started_at=1.0),))
    with pytest.raises(Missing):
        m[anomaly_place]


def test_training_loop_is_named_by_line():
    other = (MAIN[0], 60, "main", "")
    places = of(*STEP, stack("other", 40.0, MAIN), stack("other", 30.0, other, GZIP))[hot_places]
    found = {place.line: place for place in places if place.phase == "other"}
    assert {(place.function, place.whole) for place in found.values()} == {("main", False)}
    assert found[50].share == pytest.approx(0.4)
    assert (found[60].library, found[60].called) == ("gzip", "GzipFile.read")


def test_function_of_only_one_phase_is_not_the_loop():
    (place,) = [one for one in of(*STEP)[hot_places] if one.phase == "forward"]
    assert (place.function, place.whole) == ("Net.forward", True)


def test_workers_and_work_between_steps_have_separate_places():
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


@pytest.mark.parametrize("frame", [("dataloader.py", "_next_index"), ("sampler.py", "BatchSampler.__iter__")])
def test_function_that_draws_indices_is_a_sampler(frame):
    draws = ("/home/me/data.py", 9, "Curriculum.__iter__", "")
    above = (MAIN, (f"torch/utils/data/{frame[0]}", 715, frame[1], "torch"))
    fetches = stack("data_wait", 9.0, MAIN, FETCH, ITEM)
    kinds = {one.function: one.kind for one in of(*STEP, stack("data_wait", 9.0, *above, draws), fetches)[hot_places]}
    assert (kinds["Curriculum.__iter__"], kinds["D.__getitem__"]) == ("sampler", "")


def test_without_stacks_the_remedy_says_how_to_get_them():
    with pytest.raises(Missing) as missing:
        of()[hot_place]
    assert "doctor" in missing.value.remedy


@pytest.mark.parametrize(("share", "count"), [(0.2, 40), (0.0, 10), (1.0, 10), (0.5, 0)])
def test_interval_contains_share(share, count):
    low, high = interval(share, count)
    assert 0.0 <= low <= share <= high <= 1.0


def test_the_interval_of_forty_samples():
    assert interval(0.2, 40) == pytest.approx((0.105, 0.347), abs=0.001)


@pytest.mark.parametrize(
    ("place", "around", "forwards", "kind"),
    [
        ({}, None, 0.0, ""),
        ({}, Syntax(loop=True), 0.0, "loop"),
        ({"own": 0.5}, Syntax(loop=True), 0.0, "loop"),
        ({"own": 0.2}, Syntax(loop=True), 0.0, ""),  # it mostly calls other functions of the program
        ({"own": 0.5, "phase": "forward"}, Syntax(loop=True), 0.0, ""),
        ({"called": "Module._call_impl"}, Syntax(loop=True), 0.0, ""),
        ({"phase": "forward"}, Syntax(loop=True, recurrent=True), 0.0, ""),  # each iteration needs the one before
        ({}, Syntax(loop=True, recurrent=True), 0.0, "loop"),
        ({"phases": (("other", 0.6), ("forward", 0.01))}, Syntax(loop=True, recurrent=True), 0.0, "loop"),
        ({"phase": "backward"}, Syntax(loop=True), 0.0, ""),
        ({"whole": False}, Syntax(loop=True), 0.0, ""),
        ({}, Syntax(generator=True), 0.0, "generator"),
        ({}, Syntax(calls=frozenset(("sleep", "time.sleep"))), 0.0, "sleep"),
        ({"own": 0.5}, Syntax(calls=frozenset(("time.sleep",))), 0.0, ""),
        ({}, Syntax(calls=frozenset(("item",))), 0.0, "values"),
        ({"library": "PIL"}, None, 0.0, "PIL"),
        ({"library": "transformers"}, None, 0.0, "tokenizers"),
        ({}, Syntax(calls=frozenset(("tensor", "torch.tensor"))), 0.0, "lists"),
        ({}, Syntax(loop=True, calls=frozenset(("torch.tensor",))), 0.0, "lists"),  # the loop is a comprehension
        ({}, Syntax(loop=True, statement_loop=True, calls=frozenset(("torch.tensor",))), 0.0, "loop"),
        ({"phase": "forward"}, Syntax(calls=frozenset(("tensor", "torch.tensor"))), 0.0, ""),
        ({}, Syntax(loop=True, parameters=True), 0.0, "parameters"),
        ({"library": "json"}, Syntax(calls=frozenset(("dump", "json.dump"))), 0.0, "file"),
        ({"library": "json"}, Syntax(calls=frozenset(("loads", "json.loads"))), 0.0, "json"),
        ({}, Syntax(loop=True, calls=frozenset(("open",))), 0.0, "file"),
        ({"library": "PIL"}, Syntax(calls=frozenset(("open", "Image.open"))), 0.0, "PIL"),
        ({}, Syntax(loop=True, calls=frozenset(("index", "words.index"))), 0.0, "search"),
        ({"phase": "forward"}, Syntax(loop=True, one_row=True, no_grad=True), 40.0, "one_row"),
        ({"phase": "forward"}, Syntax(loop=True, no_grad=True), 40.0, "evaluation"),
        ({"phase": "forward", "called": "Module._call_impl"}, Syntax(loop=True, no_grad=True), 2.0, ""),
    ],
)
def test_kind_of_place_follows_from_frames_and_source(place, around, forwards, kind):
    assert kind_of(replace(NORMALIZING, **place), around, forwards) == kind


def test_code_without_gradients_is_evaluation_if_hooks_saw_one():
    place = replace(NORMALIZING, phase="data_wait", phases=(("data_wait", 0.5), ("forward", 0.1)))
    around = Syntax(loop=True, no_grad=True)
    assert kind_of(place, around, 1.0, evaluates=True) == "evaluation"
    assert kind_of(place, replace(around, loop=False), 1.0, evaluates=True) == "evaluation"
    assert kind_of(place, around, 1.0) == "loop"
    assert kind_of(place, replace(around, no_grad=False), 1.0, evaluates=True) == "loop"


def test_hot_place_has_its_share_of_time_between_steps():
    m = of(
        *STEP,
        stack("other", 50.0, MAIN, NORMALIZE),
        stack("evaluation", 6.0, MAIN, NORMALIZE, steady=False),
        stack("checkpoint_save", 2.0, MAIN, steady=False),
        stack("other", 9.0, MAIN, NORMALIZE, steady=False),
    )
    assert m[hot_place_between] == pytest.approx(0.75)
    assert m[sampled_phases] == pytest.approx({"forward": 0.125, "backward": 0.25, "other": 0.625})


@pytest.mark.parametrize(
    ("evaluation", "others", "phase"),
    [
        (2.0, (), "evaluation"),
        (0.0, (), "data_wait"),  # hooks saw no evaluation
        (2.0, ("steady", "forward"), "data_wait"),  # the training loop calls it, too
        (2.0, ("between", "backward"), "data_wait"),  # it trains
    ],
)
def test_function_that_only_runs_forward_is_evaluation_if_hooks_saw_one(evaluation, others, phase):
    call, validate = (MAIN[0], 60, "main", ""), (MAIN[0], 15, "validate", "")
    no_grad = ("torch/utils/_contextlib.py", 124, "context_decorator.decorate_context", "torch")
    wait = ("torch/utils/data/dataloader.py", 733, "_BaseDataLoaderIter.__next__", "torch")
    found = [
        stack("data_wait", 30.0, call, no_grad, validate, wait, ITEM, steady=False),
        stack("forward", 20.0, call, no_grad, validate, FORWARD, NET, steady=False),
        stack("other", 5.0, (MAIN[0], 51, "main", ""), NORMALIZE, steady=False),
    ]
    if others:
        found.append(stack(others[1], 30.0, call, validate, FORWARD, steady=others[0] == "steady"))
    timed = steps(*9 * [0.1], evaluation=0.0), steps(0.1, start=0.9, evaluation=evaluation, tags=TAG_EVALUATION)
    m = metrics(rank(stacks=(*STEP, *found), steps=timed[0] + timed[1]))
    place = m[places_between][0]
    assert place.phase == phase
    if phase == "evaluation":
        slow = metrics(rank(stacks=(*STEP, found[0]), steps=timed[0] + timed[1]))[places_between]
        assert slow[0].phase == phase, "a model so fast that no sample shows it"
        assert (place.function, place.line, place.share) == ("validate", 15, pytest.approx(50 / 85))


@pytest.mark.parametrize(("around", "phase"), [("torch.no_grad()", "evaluation"), ("timer", "forward")])
def test_function_without_gradients_is_evaluation_despite_clock_skew(tmp_path, around, phase):
    path = tmp_path / "train.py"
    path.write_text(f"def validate():\n    with {around}:\n        model(x)\n")
    os.utime(path, (0, 0))
    validate = (str(path), 3, "validate", "")
    found = [stack("forward", 10.0, MAIN, validate, FORWARD, steady=steady) for steady in (True, False)]
    timed = steps(*9 * [0.1], evaluation=0.0), steps(0.1, start=0.9, evaluation=2.0, tags=TAG_EVALUATION)
    place = metrics(rank(stacks=(*STEP, *found), steps=timed[0] + timed[1]), runs=(RUN,))[places_between][0]
    assert place.phase == phase


@pytest.mark.parametrize(
    ("phase", "measured", "shown"),
    [
        ("other", 0.69, 0.69),
        ("logging", 0.69, 0.69),
        ("other", 0.75, 0.7),
        ("other", 0.5, 0.7),  # far below the sampled share: another phase of the same name
        ("data_wait", 0.5, 0.5),
        ("data_wait", None, 0.7),
    ],
)
def test_sampled_share_is_capped_by_measured_phase(phase, measured, shown):
    hooks = {"other": 0.2, "data_wait": None, "other" if phase == "logging" else phase: measured}
    timed = steps(*20 * [1.0], forward=0.1, backward=0.05, optimizer=0.05, **hooks)
    place = metrics(rank(stacks=(*STEP, stack(phase, 70.0, MAIN, NORMALIZE)), steps=timed))[hot_places][0]
    assert (place.phase, place.share) == (phase, pytest.approx(shown))
    assert place.low <= place.share


def test_inconsistent_stacks_do_not_turn_function_into_loop():
    torn = stack("optimizer", 1.0, MAIN, NORMALIZE, ("torch/optim/sgd.py", 9, "step", "torch"))
    rows = torn, stack("forward", 9.0, MAIN, NORMALIZE, FORWARD), stack("other", 40.0, MAIN, NORMALIZE)
    place = of(*STEP, *rows)[hot_place]
    assert (place.function, place.whole, place.share) == ("normalize", True, pytest.approx(50 / 80))


@pytest.mark.parametrize(("called", "named"), [((ITEM,), "D.__getitem__"), ((), "")])
def test_only_user_function_is_named_for_data_wait(called, named):
    shard = ("accelerate/data_loader.py", 9, "DataLoaderShard.__iter__", "accelerate")
    m = of(*STEP, stack("data_wait", 60.0, MAIN, shard, FETCH, *called), stack("other", 4.0, MAIN, NORMALIZE))
    assert m[hot_place].function == (named or "normalize")


def test_caller_of_backward_is_the_loop_without_other_phases():
    first, second = of(stack("backward", 60.0, MAIN, BACKWARD), stack("other", 40.0, MAIN, NORMALIZE))[hot_places]
    assert (first.function, first.whole, first.phase) == ("main", False, "backward")
    assert (second.function, second.whole, second.share) == ("normalize", True, pytest.approx(0.4))
