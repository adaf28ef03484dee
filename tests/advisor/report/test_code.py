"""Stacks in a report: trees of calls, source with heat, and the first sentence."""

import os
import time
from dataclasses import replace

import pytest
from golden_report import golden
from stack_places import NORMALIZE

from advisor.report.code import Code, Heat, HotLine, _heat, _trees, evidence
from advisor.report.conclusion import conclude
from advisor.report.render import html, markdown, result_json, view
from advisor.report.wording import diagnosis, guidance, inside_other
from advisor.runs.source import source
from profiler.schema import Stack

PLACE = replace(NORMALIZE, line=2, function="<b>normalize")


def stack(*frames, total=1.0):
    return Stack(pid=1, id=0, phase="other", steady=True, frames=frames, total=total, samples=10)


def test_calls_are_nested_and_small_ones_left_out():
    outer, inner = ("t.py", 1, "main", ""), ("torch/a.py", 2, "tanh", "torch")
    (tree,) = _trees([stack(outer, inner, total=0.7), stack(outer, total=0.295), stack(inner, total=0.005)])
    (main,) = tree.calls
    assert (main.name, main.own, main.share) == ("main", True, pytest.approx(0.995))
    assert [(call.name, call.own, call.share) for call in main.calls] == [("tanh", False, pytest.approx(0.7))]


def test_stacks_of_no_time_make_no_tree():
    assert _trees([stack(("t.py", 1, "main", ""), total=0.0)]) == ()


def test_source_is_shown_only_if_unchanged_and_without_secrets(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("def f():\n    x = 1\n    api_key = 'sk-abcdefghijklmnopqrstuvwxyz123456'\n")
    rows = [stack((str(path), 2, "f", ""))]
    place = replace(PLACE, file=str(path), function="f")
    heat = _heat(place, rows, time.time() + 1)
    assert [(line.number, line.share) for line in heat.lines] == [(1, 0.0), (2, 1.0), (3, 0.0)]
    assert "sk-abc" not in heat.lines[2].text
    os.utime(path, (time.time() + 100,) * 2)
    assert _heat(place, rows, time.time()).changed
    assert source(str(tmp_path), time.time() + 1) is None


def test_non_python_files_and_links_are_not_shown(tmp_path):
    secret, link = tmp_path / "id_rsa", tmp_path / "link.py"
    secret.write_text("private\n")
    link.symlink_to(secret)
    assert source(str(secret), time.time() + 1) is None
    assert source(str(link), time.time() + 1) is None


def report(**changes):
    stacks = Code(
        samples=450,
        places=(PLACE,),
        heated=(Heat(place=PLACE, lines=(HotLine(2, "x = '<script>'", 0.66),), changed=False),),
    )
    phases = tuple(
        replace(phase, share={"other": 0.7, "forward": 0.3}.get(phase.name, 0.0)) for phase in golden().phases
    )
    return replace(golden(), **{"code": stacks, "phases": phases, "advice": (), **changes})


def test_diagnosis_ends_with_hottest_line():
    assert "66%" in diagnosis(report())
    assert diagnosis(report()).endswith("train.py:2.")
    assert conclude(report()).kind == "unexplained"


@pytest.mark.parametrize(("samples", "low", "is_named"), [(10, 0.1, True), (9, 0.1, False), (10, 0.09, False)])
def test_line_is_named_only_with_enough_samples_and_share(samples, low, is_named):
    found = Code(samples=samples, places=(replace(PLACE, share=0.2, low=low),))

    assert (found.hottest("other") is not None) is is_named


@pytest.mark.parametrize(
    ("rule", "found"),
    [("data-workers-zero", False), ("host-logging", True), ("data-more-workers", True), ("hot-line", False)],
)
def test_a_rule_gets_the_line_of_its_phase(rule, found):
    worker = replace(PLACE, phase="fetch")
    assert bool(evidence(rule, Code(samples=450, places=(PLACE,), workers=(worker,)))) is found
    assert evidence(rule, None) is None


@pytest.mark.parametrize(("part", "line"), [(0.3, 2), (0.1, 45)])
def test_user_line_is_preferred_to_torch_loader_line_for_data_wait(part, line):
    loader = replace(PLACE, phase="data_wait", whole=False, library="torch", called="__next__", line=45, share=0.5)
    mine = replace(PLACE, phase="data_wait", share=part, low=part / 2)
    assert evidence("data-workers-zero", Code(samples=450, places=(loader, mine)))[0].line == line


def test_sampler_is_not_evidence_of_batch_preparation():
    sampler = replace(PLACE, phase="data_wait", kind="sampler")
    assert evidence("data-workers-zero", Code(samples=450, places=(sampler,))) is None


def test_evaluation_is_recognized_by_kind_without_framework():
    place = replace(PLACE, phase="data_wait", kind="evaluation")
    assert evidence("eval-less-often", Code(samples=450, places=(PLACE, place)))[0] is place
    assert evidence("eval-less-often", Code(samples=450, places=(PLACE,))) is None


def test_code_section_states_how_reliable_samples_are():
    page = html.render(report())
    section = page.partition('<section id="code">')[2].partition("</section>")[0]
    lead = section.partition('<p class="lead">')[2].partition("</p>")[0]
    assert lead.startswith("450 ")
    assert "two moments" in lead


def test_diagnosis_of_data_wait_ends_with_worker_line():
    phases = tuple(replace(phase, share=0.9 if phase.name == "data_wait" else 0.0) for phase in golden().phases)
    code = Code(samples=450, places=(), workers=(replace(PLACE, phase="fetch"),))
    made = report(phases=phases, code=code)
    assert diagnosis(made).endswith("train.py:2.")
    assert guidance(made).startswith("Look at")


def test_with_few_samples_no_line_is_named():
    few = replace(report(), code=replace(report().code, samples=9))
    assert "train.py:2" not in diagnosis(few)
    assert view.places_text(few) == []


def test_all_formats_show_place_and_escape_it():
    made = report()
    page = html.render(made)
    assert 'id="code"' in page
    assert "<b>normalize" not in page
    assert "'<script>'" not in page
    assert "train.py:2" in markdown.render(made)
    assert result_json.result(made)["code"]["step"][0]["line"] == 2


def test_a_named_line_does_not_hide_that_the_forward_pass_was_not_seen():
    backward = {"backward": 0.6, "other": 0.4}
    seen = [replace(phase, share=backward.get(phase.name, 0.0)) for phase in golden().phases]
    unseen = tuple(replace(phase, share=None) if phase.name == "forward" else phase for phase in seen)

    assert inside_other(report(phases=tuple(seen))) == ""
    assert "model(x)" in inside_other(report(phases=unseen))
