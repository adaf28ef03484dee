"""The report: what it says about a run, and that result.json keeps its contract."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pynvml
import pytest
from golden_report import altered, empty, golden
from snapshots import same, scenes
from stack_places import NORMALIZE

from advisor.judging.judge import Estimate, judge
from advisor.metrics.base import Goals, Metrics, Missing, Need, metric
from advisor.metrics.host import CoreUse
from advisor.metrics.step import data_wait_fraction, h2d_fraction, steady_step_count, typical_step_uncertainty
from advisor.report import pages
from advisor.report.build import build_report
from advisor.report.code import Code
from advisor.report.conclusion import Conclusion, conclude, in_order
from advisor.report.one_step import one_step
from advisor.report.ranks import ranks
from advisor.report.render import result_json, view
from advisor.report.report import Phase, Recommendation, Report
from advisor.report.wording import diagnosis, forecast, gain_text, guidance, inside_other, measured_text, unanswered
from advisor.rules.base import (
    Advice,
    Area,
    Change,
    CodeDifference,
    Confidence,
    Evidence,
    Measurement,
    Rule,
    Severity,
    Source,
)
from advisor.runs.profile import Profile, Rank
from profiler.recorder.nvml import explain
from profiler.schema import (
    TAG_EVALUATION,
    DdpFact,
    DeviceFact,
    ErrorFact,
    HostSample,
    MemoryFact,
    ModelFact,
    Problem,
    Process,
    RegionFact,
    Run,
    Step,
)

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "result.schema.json").read_text())


def a_profile(steps: int = 60, *, wait: float = 0.06, tags: int = 0) -> Profile:
    """Return a profile of 100 ms steps, each with `wait` seconds without a batch."""
    run = Run(
        id="r",
        command=("train.py", "--lr", "1"),
        cwd="/w",
        host="h",
        started_at=1_700_000_000.0,
        duration=10.0,
        outcome="completed",
        exit_status=0,
        cores=4.0,
        cores_total=8,
        memory_total=2**34,
        platform="Linux",
        python="3.11",
        version="0.1.0",
        recorder_cpu=0.5,
    )
    process = Process(
        pid=7, started=1.0, ended=9.0, events=300, hooks=0.02, windows=0.06, python="3.11", torch="2.13.0"
    )
    rows = tuple(
        Step(
            pid=7,
            index=i,
            start=1.0 + 0.1 * i,
            duration=0.1,
            tags=tags,
            batches=1.0,
            data_wait=wait,
            forward=0.01,
            backward=0.02,
            optimizer=0.1 - wait - 0.03,
            evaluation=0.0,
        )
        for i in range(steps)
    )
    note = Problem(time=1.0, source="nvml", message="no driver")
    return Profile(runs=(run,), ranks=(Rank(process=process, steps=rows),), problems=(note, note))


def starved(m: Metrics) -> Evidence | None:
    """If a twentieth of each step has no batch,"""
    share = m[data_wait_fraction]
    return Evidence((Measurement(data_wait_fraction, share, 0.05),), "a slow loader") if share > 0.05 else None


def load_faster(m: Metrics, found: Evidence) -> Advice:
    """then load faster."""
    return Advice(
        then="Use 4 workers.",
        changes=(
            Change(
                language="python",
                code="num_workers=4",
                file="train.py",
                line=3,
                differences=(CodeDifference("num_workers", "0", "4"),),
            ),
        ),
        basis="All of the wait goes.",
        effect=lambda state, scenario: replace(state, load=state.load * scenario.of((0.5, 0.2, 0.0))),
        risk="None.",
    )


def broken(m: Metrics) -> Evidence | None:
    """If this is reached,"""
    raise ZeroDivisionError("division by zero")


STARVED = Rule(
    id="starved",
    page="The loop waits.\n\nEvery batch is late.\n\nWrong when: the data is gone.",
    title="Load faster",
    area=Area.STALLS,
    when=starved,
    then=load_faster,
    confidence=Confidence.PHASE_REMOVAL,
    difficulty=1,
    sources=(Source("A paper", "https://example.org"),),
)
BROKEN = replace(STARVED, id="broken", when=broken)


def ended_by(error: str | None) -> Profile:
    """Return the same steps, ended by an exception of this type."""
    profile = a_profile()
    fact = ErrorFact(type=error) if error else None
    return replace(profile, ranks=tuple(replace(rank, error=fact) for rank in profile.ranks))


def on_a_gpu(*, measured: bool) -> Profile:
    """Return the same steps on a device of 100 bytes, with 60 allocated at the peak, 35 of them states."""
    profile = a_profile()
    device = DeviceFact(id=0, memory_total=100)
    peak = MemoryFact(id=0, parameters=10, gradients=5, optimizer=20, allocated_peak=60, reserved_peak=78)
    rank = replace(profile.ranks[0], devices=(device,), memory_peaks=(peak,) if measured else ())
    return replace(profile, ranks=(rank,))


def test_what_if_is_available_for_measured_memory():
    report = report_of(on_a_gpu(measured=True))

    assert report.what_if is not None
    assert report.what_if.anatomy.parts(report.what_if.anatomy.now).total == 78
    assert report.memory_missing == ""


def test_missing_memory_is_reported_on_gpu_but_not_on_cpu():
    unmeasured, cpu = report_of(on_a_gpu(measured=False)), report_of(a_profile())

    assert unmeasured.what_if is cpu.what_if is None
    assert (bool(unmeasured.memory_missing), bool(cpu.memory_missing)) == (True, False)


@pytest.mark.parametrize(("error", "is_out"), [("torch.OutOfMemoryError", True), ("ValueError", False), (None, False)])
def test_out_of_memory_run_is_recognized(error, is_out):
    assert report_of(ended_by(error)).out_of_memory is is_out


def test_meaning_of_epoch_settling_depends_on_forked_workers():
    settling = Phase(name="epoch_settling", share=0.1)

    assert settling.meaning != replace(settling, forked=True).meaning


def test_few_ranks_are_listed_individually():
    profile = a_profile()
    slow = a_profile(wait=0.02).ranks[0]
    slow = replace(slow, process=replace(slow.process, pid=8, rank=1))
    both = report_of(replace(profile, ranks=(*profile.ranks, slow)))

    rows = [(rank, parts[0].name, parts[0].amount, seconds) for rank, seconds, parts in view.by_rank(both)]
    assert rows == [
        (0, "data_wait", pytest.approx(0.6), pytest.approx(0.1)),
        (1, "data_wait", pytest.approx(0.2), pytest.approx(0.1)),
    ]
    assert view.by_rank(report_of(profile)) == []
    many = tuple(replace(slow, process=replace(slow.process, pid=pid, rank=pid)) for pid in range(20))
    recorded = replace(profile, ranks=many)
    assert view.by_rank(report_of(recorded)) == []
    traced = ranks(Metrics(recorded), replace(recorded, runs=()))
    assert view.by_rank(replace(report_of(recorded), ranks=traced)) == []


def test_communication_timed_by_ddp_is_separate_from_backward():
    """On a CPU steps do not measure collectives; DistributedDataParallel times some of its passes."""
    profile = a_profile(wait=0.0)
    timed = DdpFact(
        id=1,
        backend="gloo",
        gradient_bytes=1000,
        dtypes=("float32",),
        steps=60,
        passes=60,
        reduced=60,
        samples=6,
        communication=0.06,
        overlap=0.01,
    )
    steps = tuple(
        replace(each, backward=0.08, optimizer=0.01, forward=0.01, micro_steps=1.0) for each in profile.ranks[0].steps
    )
    first = replace(profile.ranks[0], steps=steps, ddp=(timed,))
    both = tuple(
        replace(first, process=replace(first.process, pid=7 + n, rank=n, local_rank=n, world_size=2)) for n in (0, 1)
    )

    report = report_of(replace(profile, ranks=both))

    shares = result_json.result(report)["phases"]
    assert (shares["communication"], shares["backward"]) == (pytest.approx(0.5), pytest.approx(0.3))
    assert conclude(report) == Conclusion("unexplained", phase="communication")
    assert report.run.ranks == 2
    assert "on 2 ranks" in diagnosis(report)


def report_of(profile: Profile, *rules: Rule, goals: Goals | None = None) -> Report:
    metrics = Metrics(profile, goals)
    return build_report(profile, judge(metrics, rules), metrics)


def said(report: Report) -> str:
    return f"{diagnosis(report)} {guidance(report)}".strip()


@pytest.mark.parametrize(
    "report",
    [
        golden(),
        empty(),
        report_of(a_profile(), STARVED, BROKEN),
        report_of(a_profile(), STARVED, goals=Goals(gpu_price=2.0)),
        report_of(a_profile(steps=2), STARVED),
        report_of(a_profile(tags=8), STARVED),
        report_of(replace(a_profile(), ranks=()), STARVED),
    ],
    ids=["golden", "empty", "fired and crashed", "with a price", "two steps", "no steady step", "no rank"],
)
def test_result_validates_against_schema(report):
    jsonschema.validate(result_json.result(report), SCHEMA)
    json.dumps(result_json.result(report), allow_nan=False)


def test_schema_rejects_missing_phase():
    result = result_json.result(golden())
    del result["phases"]["h2d"]

    with pytest.raises(jsonschema.ValidationError, match="h2d"):
        jsonschema.validate(result, SCHEMA)


def test_phases_are_shares_of_the_mean_step_and_null_where_not_measured():
    phases = result_json.result(report_of(a_profile()))["phases"]

    assert phases["data_wait"] == pytest.approx(0.6)
    assert sum(share for share in phases.values() if share is not None) == pytest.approx(1.0)
    assert phases["h2d"] is None
    assert phases["evaluation"] == 0.0
    assert phases["checkpoint_save"] is None


def test_metrics_hold_values_or_remedies_and_no_settings():
    metrics = result_json.result(report_of(a_profile()))["metrics"]

    assert metrics["data_wait_fraction"] == {"value": pytest.approx(0.6), "unit": "1"}
    assert set(metrics["gpu_utilization"]) == {"missing", "remedy"}
    assert "steady_steps" not in metrics


def test_a_metric_without_a_finite_value_is_missing(monkeypatch):
    @metric("1")
    def endless(m: Metrics) -> float:
        """One over nothing."""
        return float("inf")

    monkeypatch.setattr("advisor.report.quantities.all_metrics", lambda: (endless,))

    assert result_json.result(report_of(a_profile()))["metrics"]["endless"]["missing"]


def test_advice_includes_rule_evidence_and_change():
    advice = result_json.result(report_of(a_profile(), STARVED))["advice"][0]

    assert advice["rule"] == "starved"
    assert advice["if"] == starved.__doc__[3:-1] + "."
    assert advice["evidence"] == [{"metric": "data_wait_fraction", "value": pytest.approx(0.6), "limit": 0.05}]
    assert advice["change"] == [
        {
            "language": "python",
            "file": "train.py",
            "line": 3,
            "code": "num_workers=4",
            "differences": [{"name": "num_workers", "before": "0", "after": "4"}],
        }
    ]
    assert advice["gain"]["step_time_removed"]["expected"] == pytest.approx(0.48, abs=0.01)
    assert advice["gain"]["in_plan"] == advice["gain"]["step_time_removed"]


def test_every_rule_ends_in_a_verdict():
    verdicts = result_json.result(report_of(a_profile(), STARVED, BROKEN))["verdicts"]

    assert [verdict["outcome"] for verdict in verdicts] == ["fired", "crashed"]
    assert "ZeroDivisionError" in verdicts[1]["why"]


def wanting(name: str, need: Need) -> Rule:
    def when(m: Metrics) -> Evidence | None:
        raise Missing("It is not there", "Get it.", need)

    return replace(STARVED, id=name, when=when)


def test_rules_without_answer_state_what_they_need():
    off = replace(STARVED, id="off", off="here.toml")
    needs = (("a", Need.GPU), ("b", Need.GPU), ("c", Need.RANKS), ("d", Need.DECLARATION), ("e", Need.RUN))

    report = report_of(a_profile(), STARVED, BROKEN, off, *(wanting(name, need) for name, need in needs))

    reasons = {verdict["rule"]: verdict["needs"] for verdict in result_json.result(report)["verdicts"]}
    assert reasons == {
        "starved": None,
        "broken": None,
        "off": None,
        **{"a": "gpu", "b": "gpu", "c": "ranks", "d": "declaration", "e": "run"},
    }


def test_no_unanswered_note_if_every_rule_has_an_answer():
    assert unanswered(report_of(a_profile(), STARVED)) == ""


def with_other(seconds: float, *regions: RegionFact) -> Profile:
    """Return a profile of 100 ms steps, each with `seconds` outside every known phase."""
    profile = a_profile(wait=0.0)
    (rank,) = profile.ranks
    steps = tuple(replace(step, optimizer=0.07 - seconds, other=seconds) for step in rank.steps)
    return replace(profile, ranks=(replace(rank, steps=steps, regions=regions),))


def test_large_other_phase_suggests_how_to_break_it_down():
    assert inside_other(report_of(with_other(0.0101)))
    assert inside_other(report_of(with_other(0.0099))) == ""
    assert inside_other(report_of(a_profile())) == ""


def test_result_lists_regions_longest_first_and_suggests_more():
    loss, log = RegionFact(id=1, name="loss", count=60, seconds=0.6), RegionFact(id=2, name="log", count=6, seconds=2)

    report = report_of(with_other(0.03, loss, log, RegionFact(id=3, name="never")))

    assert result_json.result(report)["regions"] == [
        {"name": "log", "passes": 6, "time_s": 2},
        {"name": "loss", "passes": 60, "time_s": 0.6},
    ]
    assert "more parts" in inside_other(report)


def cheaper(m: Metrics, found: Evidence) -> Advice:
    """then pay less."""
    return replace(load_faster(m, found), effect=None, cost=(0.2, 0.25, 0.4), fault=True)


def test_result_includes_cost_removed_by_advice():
    report = report_of(a_profile(), replace(STARVED, then=cheaper))

    gain = result_json.result(report)["advice"][0]["gain"]
    assert gain["cost_removed"] == {"low": 0.2, "expected": 0.25, "high": 0.4}
    assert gain["in_plan"] is None
    assert result_json.result(report_of(a_profile(), STARVED))["advice"][0]["gain"]["cost_removed"] is None


def test_rule_page_is_split_into_explanation_and_caveat():
    *explanation, wrong = STARVED.page.split("\n\n")
    assert pages.explanation(STARVED) == tuple(explanation)
    assert pages.wrong_when(STARVED) == wrong.removeprefix("Wrong when: ")


def concluded(kind: str, phase: str | None = None):
    return {"kind": kind, "rule": None, "phase": phase, "file": None, "line": None}


def test_verdict_says_where_the_time_goes_and_what_to_do_first():
    """The model's 30, 50 and 60 % were never tried, so the sides are a quarter wider: 50 - 25 and 50 + 12.5."""
    report = report_of(a_profile(), STARVED)

    assert conclude(report) == Conclusion("act", "starved", file="train.py", line=3)
    assert (report.advice[0].finding.in_plan.low, report.advice[0].finding.in_plan.high) == pytest.approx(
        (0.25, 0.625), abs=0.006
    )


def test_verdict_of_a_healthy_run_advises_nothing():
    assert conclude(report_of(a_profile(wait=0.0), STARVED)) == Conclusion("nothing")


def test_information_only_advice_makes_verdict_unsure():
    item = altered(golden().advice[1], severity=Severity.INFO)

    assert conclude(replace(golden(), advice=(item,))) == Conclusion("unsure", item.rule)
    assert conclude(golden()) == Conclusion("act", "data-more-workers")


@pytest.mark.parametrize("phase", ["data_wait", "other", "communication"])
def test_step_that_mostly_waits_or_is_unexplained_is_not_called_healthy(phase: str):
    phases = tuple(replace(p, seconds=0.12, share=0.6) if p.name == phase else p for p in golden().phases)
    report = replace(golden(), phases=phases, advice=())

    assert conclude(report) == Conclusion("unexplained", phase=phase)
    assert result_json.result(report)["conclusion"] == concluded("unexplained", phase)


def test_step_that_mostly_computes_is_healthy():
    phases = tuple(replace(p, seconds=0.12, share=0.6) if p.name == "backward" else p for p in golden().phases)

    assert conclude(replace(golden(), phases=phases, advice=())) == Conclusion("nothing")


@pytest.mark.parametrize(("others", "representative"), [(7.0, False), (1.0, True)])
def test_result_says_whether_others_used_the_cores(others: float, representative: bool):
    profile = a_profile()
    busy = tuple(HostSample(time=1.0 + n, cpu=1.0, cpu_workers=0.0, machine_cpu=1.0 + others) for n in range(3))

    machine = result_json.result(report_of(replace(profile, host_samples=busy)))["machine"]

    assert machine == {"cores": 8, "others_cpu": pytest.approx(others), "representative": representative}
    assert result_json.result(report_of(profile))["machine"]["representative"] is None


def test_interpreter_flags_are_blamed_only_if_nothing_was_recorded():
    assert "-I, -E and -S" in guidance(empty())
    assert "-I" not in guidance(replace(empty(), run=replace(empty().run, ranks=1)))
    failed = guidance(replace(empty(), run=replace(empty().run, ended="failed", exit_status=2, signal=None)))
    assert "-I" not in failed
    assert "exit status 2" in failed


def info(rule: str, *facts: Measurement, gain: Estimate | None = None) -> Recommendation:
    return altered(golden().advice[0], rule=rule, severity=Severity.INFO, evidence=facts, alone=gain, in_plan=gain)


def measured(metric, value: float) -> Measurement:
    return Measurement(metric, value, 1, ">")


def computing(*advice: Recommendation) -> Report:
    """Return a report in which nothing waits, so that nothing is left to explain."""
    return replace(golden(), phases=tuple(p for p in golden().phases if p.name != "data_wait"), advice=advice)


def test_advice_on_noisy_steps_states_gain_they_could_hide():
    short = info("window-too-short", measured(typical_step_uncertainty, 0.06))

    assert conclude(computing(short)) == Conclusion("nothing")
    assert "below 12%" in guidance(computing(short))


def test_counsel_mentions_model_running_without_gradients():
    def said(forward: float, backward: float) -> str:
        shares = {"forward": forward, "backward": backward}
        phases = tuple(replace(phase, share=shares.get(phase.name, 0.0)) for phase in computing().phases)
        return guidance(replace(computing(), phases=phases, gpu_hours=None))

    assert (" 94%" in said(0.9, 0.04), " 4%" in said(0.9, 0.04)) == (True, True)
    assert (" 91%" in said(0.7, 0.21), " 21%" in said(0.7, 0.21)) == (True, False)


@pytest.mark.parametrize(
    ("uncertainty", "kind"), [(0.24, "nothing"), (0.26, "too_noisy"), (0.655, "too_noisy"), (3.0, "too_noisy")]
)
def test_run_that_could_hide_gain_of_half_a_step_is_too_noisy(uncertainty: float, kind: str):
    report = computing(info("window-too-short", measured(typical_step_uncertainty, uncertainty)))

    assert result_json.result(report)["conclusion"] == concluded(kind)


def test_gain_on_busy_machine_comes_with_a_caveat():
    idle, busy = (replace(golden(), cores=CoreUse(2, others, 0.2)) for others in (0.0, 1.8))

    assert conclude(busy) == conclude(idle)
    assert guidance(busy).startswith(guidance(idle))
    assert guidance(busy) != guidance(idle)


def test_most_likely_gain_comes_after_recording_advice_and_before_others():
    short = info("window-too-short", measured(typical_step_uncertainty, 0.06))
    small = info("optimizer-fused", gain=Estimate(0.04, 0.06, 0.08))
    large = info("hot-line", gain=Estimate(0.0, 0.4, 0.8))
    report = computing(short, small, large)

    assert conclude(report).rule == "optimizer-fused"
    assert [item.rule for item in in_order(report)] == ["window-too-short", "optimizer-fused", "hot-line"]
    hot = replace(large, place=("train.py", 41))
    found = Code(samples=450, places=(replace(NORMALIZE, file="train.py", kind="loop"),))
    report = replace(report, advice=(short, small, hot), code=found)
    assert [item.rule for item in in_order(report)] == ["window-too-short", "hot-line", "optimizer-fused"]


def test_the_only_gain_of_a_noisy_run_keeps_its_place():
    short, gain = info("window-too-short"), info("optimizer-fused", gain=Estimate(0.3, 0.4, 0.5))

    for advice in ((gain, short, info("goal-undefined")), (short, gain, info("goal-undefined"))):
        assert in_order(computing(*advice)) == advice


def test_verdict_names_large_uncertain_gain():
    short = info("window-too-short", measured(typical_step_uncertainty, 0.06))
    large = info("data-workers-zero", gain=Estimate(0.1, 0.4, 0.5))

    assert conclude(computing(short, large)) == Conclusion("unsure", "data-workers-zero")


def evaluating(seconds: float) -> Profile:
    profile = a_profile()
    steps = profile.ranks[0].steps
    last = replace(steps[-1], evaluation=seconds, tags=TAG_EVALUATION)
    return replace(profile, ranks=(replace(profile.ranks[0], steps=(*steps[:-1], last)),))


def test_before_is_the_mean_step_where_nothing_falls_between_steps():
    report = report_of(a_profile(), STARVED)

    assert report.before == pytest.approx(report.steps.mean)
    assert not report.extended
    assert report.after.expected == pytest.approx(0.052)


def test_before_including_evaluation_is_marked_extended():
    report = report_of(evaluating(3.0), STARVED)

    assert report.steps.mean == pytest.approx(0.1)
    assert report.before == pytest.approx(0.15)
    assert report.extended
    assert report.after.expected == pytest.approx(0.102)


def with_problem(source: str, message: str, code: str = "", profile: Profile | None = None) -> Profile:
    return replace(profile or a_profile(), problems=(Problem(time=0.0, source=source, message=message, code=code),))


def unwatched() -> Profile:
    """Return a profile whose loader was not seen."""
    profile = a_profile()
    steps = tuple(replace(s, data_wait=None, optimizer=0.01, other=0.06) for s in profile.ranks[0].steps)
    return replace(profile, ranks=(replace(profile.ranks[0], steps=steps),), problems=())


def test_unobserved_loader_is_not_ruled_out():
    broken_hook = report_of(with_problem("dataloader", "AttributeError: _next_data", profile=unwatched()))

    assert diagnosis(broken_hook) != diagnosis(report_of(unwatched()))


def test_result_lists_problems_that_matter():
    result = result_json.result(report_of(with_problem("dataloader", "AttributeError: x")))
    assert result["environment"]["problems"] == [{"source": "dataloader", "message": "AttributeError: x", "code": ""}]

    jsonschema.validate(result, SCHEMA)


def test_a_machine_without_a_gpu_is_no_problem():
    report = report_of(with_problem("nvml", *explain(pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND))))

    assert [note.matters for note in report.problems] == [False]
    assert result_json.result(report)["environment"]["problems"] == []


def test_unmeasured_amd_gpu_is_a_problem():
    profile = with_problem("nvml", *explain(pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)))
    rank = profile.ranks[0]
    amd = replace(
        rank, process=replace(rank.process, hip="6.4"), devices=(DeviceFact(id=0, name="AMD Instinct MI300X"),)
    )

    report = report_of(replace(profile, ranks=(amd,)))

    assert [note.matters for note in report.problems] == [True]


def test_a_device_whose_work_is_not_timed_is_a_problem():
    profile = a_profile()
    rank = replace(profile.ranks[0], models=(ModelFact(id=1, devices={"xpu:0": 1}),))

    report = report_of(replace(profile, ranks=(rank,)))

    assert "device" in [note.source for note in report.problems]


def test_lost_events_are_a_problem():
    profile = a_profile()
    losing = replace(profile.ranks[0].process, events_lost=100)

    notes = report_of(replace(profile, ranks=(replace(profile.ranks[0], process=losing),), problems=())).problems

    assert len(notes) == 1
    assert "100 of 400" in notes[0].message


def test_facts_and_metrics_have_readable_labels():
    report = report_of(a_profile(), STARVED)

    assert report.advice[0].finding.evidence.facts[0].metric.label == data_wait_fraction.label
    (missing,) = (one for one in report.quantities if one.name == "h2d_fraction")
    assert missing.label == h2d_fraction.label
    assert missing.missing


def test_snapshot_of_verdicts():
    off = replace(STARVED, id="off", off="here.toml")
    needs = (Need.GPU, Need.GPU, Need.RANKS, Need.DECLARATION, Need.RUN)
    wants = [wanting(str(number), need) for number, need in enumerate(needs)]
    few, loose = ((steady_step_count, 12), (typical_step_uncertainty, 0.06))
    reports = {
        "it waits for data": report_of(a_profile(), STARVED),
        "less cost": report_of(a_profile(), replace(STARVED, then=cheaper)),
        "healthy": report_of(a_profile(wait=0.0), STARVED),
        "with its share of evaluation": report_of(evaluating(3.0), STARVED),
        "much in no phase": report_of(with_other(0.0101)),
        "the loader could not be watched": report_of(with_problem("dataloader", "AttributeError", profile=unwatched())),
        "one step": report_of(a_profile(steps=1, tags=32)),
        "too few steps": computing(info("window-too-short", measured(*few))),
        "scattered steps": computing(info("window-too-short", measured(*loose))),
        "killed before it trained": empty(),
        "rules without an answer": report_of(a_profile(), STARVED, BROKEN, off, *wants),
        "out of memory": report_of(ended_by("torch.OutOfMemoryError")),
        "memory was not measured": report_of(on_a_gpu(measured=False)),
    }
    texts = {
        name: (said(report), forecast(report), inside_other(report), unanswered(report), report.memory_missing)
        for name, report in reports.items()
    }
    same("verdicts.txt", scenes({name: "\n".join(filter(None, text)) for name, text in texts.items()}))


def test_overhead_is_profiler_time_in_ranks_over_their_run_time():
    overhead = report_of(a_profile()).overhead

    assert overhead.fraction == pytest.approx(0.08 / 8)
    assert overhead.recorder_cpu == 0.5


def test_merged_steps_are_weighted_by_count():
    profile = a_profile()
    merged = tuple(replace(step, count=10) for step in profile.ranks[0].steps)

    steps = result_json.result(report_of(replace(profile, ranks=(replace(profile.ranks[0], steps=merged),))))["steps"]

    assert steps["count"] == 600
    assert steps["batches"] == 600.0


def test_repeated_problem_is_listed_once_with_count():
    (note,) = report_of(a_profile()).problems

    assert (note.message, note.count) == ("no driver", 2)


@pytest.mark.parametrize(
    ("gain", "said"),
    [
        (Estimate(0.4, 0.5, 0.62), "40 to 62% less step time"),
        (Estimate(0.4, 0.4, 0.4), "40% less step time"),
        (Estimate(-0.05, 0.1, 0.2), "between 5% slower and 20% faster"),
        (Estimate(-0.2, -0.15, -0.1), "10 to 20% more step time"),
        (Estimate(0.0, 0.0, 0.0), "nothing"),
    ],
)
def test_gains_in_words(gain, said):
    assert gain_text(gain) == said


@pytest.mark.parametrize(("value", "limit", "text"), [(2.43, 0.08, "243%"), (0.5, 0.08, "50%"), (2.43, 1.0, "2.43")])
def test_value_is_in_percent_if_its_limit_is(value, limit, text):
    assert measured_text(replace(measured(typical_step_uncertainty, value), limit=limit)) == text


@pytest.mark.parametrize("moment", [2**62, 1e300, -1e300])
def test_run_with_impossible_start_date_has_a_report(moment):
    """A damaged store may hold any number."""
    profile = a_profile()
    damaged = replace(profile, runs=(replace(profile.runs[0], started_at=moment),))
    assert report_of(damaged).run.started == ""


@pytest.mark.parametrize("column", ["duration", "forward"])
def test_impossibly_long_step_is_not_drawn(column):
    profile = a_profile()
    (rank, *_) = profile.ranks
    steps = tuple(replace(step, **{column: 1e300}) for step in rank.steps)
    assert one_step(profile) is not None
    assert one_step(replace(profile, ranks=(replace(rank, steps=steps),))) is None
