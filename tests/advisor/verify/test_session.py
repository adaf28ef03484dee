"""Which of a run's advice is tried, and the messages where nothing can be."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from profiles import RUN
from programs import COMMAND, ROOT

from advisor.judging.calibration_file import read as read_calibration
from advisor.judging.verdict import Verdict
from advisor.metrics.base import Metrics
from advisor.rules import optimizer_fused, rule_of
from advisor.rules.base import Safety
from advisor.runs.load import load
from advisor.units import seconds
from advisor.verify import kept, session, trials, tuned, tuning
from advisor.verify.arm import Arm, TrialFailed
from advisor.verify.kept import Verified
from advisor.verify.pace import AROUND, LONGER
from advisor.verify.process import ENDED
from advisor.verify.trials import TrialChoices, Trials, order
from profiler.agent.redact import HIDDEN
from profiler.errors import ProfilerError
from profiler.schema import Fact, FlagsFact, OptimizerFact, Process, Step
from profiler.store import Writer
from profiler.trial import Program

EXACT = (Safety.EXACT,)
FUSED = "optimizer-fused"


@pytest.fixture
def recorded(tmp_path):
    """Write a run of a program whose optimizer takes half of the step, and could be fused."""

    def write(**changes):
        folder = tmp_path / "run"
        writer = Writer(folder, "h")
        writer.add(replace(RUN, **{"cwd": str(tmp_path), **changes}))
        writer.add(Process(pid=1, started=0.5))
        columns = {"forward": 0.02, "backward": 0.03, "optimizer": 0.05}
        writer.add(*[Step(pid=1, index=i, start=1 + i / 10, duration=0.1, **columns) for i in range(100)])
        adam = OptimizerFact(id=1, name="Adam", module="torch.optim.adam", tensors=500, device="cpu", floating=True)
        for kind, fact in (("optimizer", adam), ("flags", FlagsFact())):
            writer.add(Fact(pid=1, time=1.0, kind=kind, body=asdict(fact)))
        writer.close()
        return folder

    (tmp_path / "run").mkdir()
    (tmp_path / "train.py").touch()
    return write


def prepare(folder, *rules, allowed=EXACT):
    return session.prepare(folder, rules, TrialChoices(allowed=allowed, processes=2))


def test_disallowed_change_is_named_with_remedy(recorded):
    prepared = prepare(recorded())

    assert prepared.candidates == ()
    assert [left.split(":")[0] for left in prepared.left_out] == [FUSED]
    assert "--allow numerics" in prepared.left_out[0]


def test_allowed_change_is_announced_with_its_duration(recorded):
    prepared = prepare(recorded(), allowed=(*EXACT, Safety.NUMERICS))

    assert [finding.rule.id for finding in prepared.candidates] == [FUSED]
    text = session.announcement(prepared)
    expected = prepared.candidates[0].alone.expected
    # 1 s to the first step, plus the overhead of a process; 5.5 s of steps unchanged, and with the prediction.
    takes = LONGER * (4 * (1 + AROUND) + 2 * 5.5 * (2 - expected))
    assert f"  {FUSED}: 4 runs of 55 steps, about {seconds(takes)}" in text


@pytest.mark.parametrize("how", [{}, {"network": True}, {"in_place": True}])
def test_announcement_mentions_network_only_by_default(recorded, how):
    text = session.announcement(session.prepare(recorded(), (), TrialChoices(allowed=EXACT, processes=2, **how)))

    assert ("--network" in text) is not bool(how)


def test_trials_repeat_changes_of_recorded_run(recorded, tmp_path):
    folder, file = recorded(), tmp_path / "kept.toml"
    file.write_text("[[change]]\nname = 'flags'\n[change.settings]\ncudnn_benchmark = true\n")
    assert prepare(folder).trials.changes == ()

    tuned.keep(file, folder)
    (change,) = prepare(folder).trials.changes
    assert (change.name, change.settings) == ("flags", {"cudnn_benchmark": True})
    assert (folder / tuned.FILE).stat().st_mode & 0o777 == 0o600


def test_rule_that_did_not_fire_is_not_tried(recorded):
    assert [left.split(":")[0] for left in prepare(recorded(), "precision-bf16").left_out] == ["precision-bf16"]


@pytest.mark.parametrize(
    ("changes", "rules", "message"),
    [
        ({"command": ()}, (), "does not contain the command"),
        ({"command": ("train.py", f"--key={HIDDEN}")}, (), "secret was left out"),
        ({"cwd": "/gone/folder"}, (), "folder in which the program ran is gone"),
        ({"command": ("gone.py",)}, (), "script is gone"),
        ({}, ("no-such-rule",), "no rule 'no-such-rule'"),
    ],
)
def test_unrepeatable_run_gives_message_and_remedy(recorded, changes, rules, message):
    with pytest.raises(ProfilerError, match=message) as caught:
        prepare(recorded(**changes), *rules)
    assert caught.value.remedy


def test_rule_superseded_by_refuted_one_is_tried_next(recorded):
    """The refuted rule, too, with its model's prediction: the program may have changed since."""
    folder = recorded()
    first = replace(rule_of(optimizer_fused), id="first", supersedes=(FUSED,))
    known, allowed = (first, replace(rule_of(optimizer_fused), id=FUSED)), (*EXACT, Safety.NUMERICS)

    def candidates():
        found = session.prepare(folder, (), TrialChoices(allowed=allowed, processes=2, rules=known)).candidates
        return {finding.rule.id: finding.alone.expected for finding in found}

    before = candidates()
    refuted = Verified(rule="first", verdict=Verdict.REFUTED, predicted=None, removed=(-0.01, 0.0, 0.01))
    kept.write(folder, {"first": refuted})

    assert list(before) == ["first"]
    assert candidates() == {**before, FUSED: before["first"]}


def test_tuning_continues_with_rule_superseded_by_refuted_one(recorded, tmp_path, monkeypatch):
    first = replace(rule_of(optimizer_fused), id="first", supersedes=(FUSED,))
    known, how = (first, replace(rule_of(optimizer_fused), id=FUSED)), (*EXACT, Safety.NUMERICS)
    folder, tried = recorded(), []

    def attempt(trials, finding, running):
        tried.append(finding.rule.id)
        return Verified(rule=finding.rule.id, verdict=Verdict.REFUTED, predicted=None, removed=(-0.01, 0.0, 0.01))

    monkeypatch.setattr(Trials, "attempt", attempt)
    monkeypatch.setattr(tuning, "_profile", lambda *_: Metrics(load(folder)))
    (tmp_path / "tuning/profile-1").mkdir(parents=True)
    (tmp_path / "tuning" / tuning.NOTE).write_text(
        json.dumps({"schema": tuning.SCHEMA, "command": ["train.py"], "cwd": str(tmp_path)})
    )
    program = Program(words=("train.py",), cwd=str(tmp_path))
    choices = TrialChoices(allowed=how, processes=2, rules=known)
    tuned_so = tuning.tune(program, tmp_path / "tuning", choices, Messages())

    assert tried == ["first", FUSED]
    assert [each.rule for each in tuned_so.given_up] == tried
    assert (tuned_so.kept, tuned_so.by_hand) == ((), ())


def test_arms_take_turns_at_being_first():
    assert list(order(3)) == [False, True, True, False, False, True]


class Messages:
    def __init__(self):
        self.lines = []

    def trying(self, trials, finding):
        self.lines.append(f"trying {finding.rule.id}")

    def running(self, what, done, of):
        pass

    def profiling(self, number, kept):
        pass

    def tried(self, finding, found):
        self.lines.append(f"{finding.rule.id} {found.verdict.value}")

    def show(self, text):
        self.lines.append(text)


@pytest.mark.parametrize(
    ("before", "is_kept"), [(Verdict.CONFIRMED, False), (Verdict.FAILED, False), (Verdict.INCONCLUSIVE, True)]
)
def test_conclusive_trial_is_repeated_from_scratch(recorded, monkeypatch, before, is_kept):
    """An inconclusive trial keeps its runs, because it needs more of them."""
    prepared = prepare(recorded(), allowed=(*EXACT, Safety.NUMERICS))
    old = prepared.trials.folder / f"{FUSED}-55/without-1/ended"
    old.parent.mkdir(parents=True)
    old.touch()
    other = Verified(rule="other", verdict=Verdict.PARTIAL, predicted=None)
    kept.write(prepared.folder, {"other": other, FUSED: replace(other, rule=FUSED, verdict=before)})

    found = Verified(rule=FUSED, verdict=Verdict.BETTER, predicted=(0.1, 0.2, 0.3))
    monkeypatch.setattr(Trials, "attempt", lambda *_: found)
    messages = Messages()
    prepared.carry_out(messages)

    assert old.exists() is is_kept
    assert kept.read(prepared.folder) == {"other": other, FUSED: found}
    assert messages.lines == [f"trying {FUSED}", f"{FUSED} better"]


def test_a_trial_is_not_stored_next_to_another_recording(recorded, monkeypatch):
    prepared = prepare(recorded(), allowed=(*EXACT, Safety.NUMERICS))
    trial = prepared.trials.folder / f"{FUSED}-55"

    def attempt(*_):
        (prepared.folder / "run-h.db").unlink()
        recorded(id="another")
        trial.mkdir(parents=True)
        return Verified(rule=FUSED, verdict=Verdict.BETTER, predicted=(0.1, 0.2, 0.3))

    monkeypatch.setattr(Trials, "attempt", attempt)
    with pytest.raises(ProfilerError):
        prepared.carry_out(Messages())

    assert kept.read(prepared.folder) == {}
    assert not trial.exists()


@pytest.fixture
def verified(recorded, monkeypatch, tmp_path):
    """End every trial as given; the verdict goes to a calibration file."""

    def carry_out(found, file=None, times=1):
        monkeypatch.setattr(Trials, "attempt", lambda *_: found)
        file = file or tmp_path / "calibration.jsonl"
        messages = Messages()
        folder = recorded()
        for _ in range(times):
            allowed, past = (*EXACT, Safety.NUMERICS), read_calibration(file)[0]
            how = TrialChoices(allowed=allowed, processes=2, past=past, calibration=file)
            session.prepare(folder, (), how).carry_out(messages)
        return file, messages.lines

    return carry_out


def test_verdict_counts_once_and_is_stored_with_evidence(verified):
    found = Verified(rule=FUSED, verdict=Verdict.REFUTED, predicted=(0.1, 0.2, 0.3), removed=(-0.01, 0.0, 0.01))
    file, _ = verified(found, times=2)

    (tried,) = read_calibration(file)[0].tried
    assert (tried.rule, tried.verdict, tried.removed) == (FUSED, Verdict.REFUTED, (-0.01, 0.0, 0.01))
    first, second = map(json.loads, file.read_text().splitlines())
    # The first verdict widened the second prediction; the file stores the model's own.
    assert first["predicted"] == second["predicted"]
    assert first["evidence"]["optimizer_fraction"] == pytest.approx(0.5)
    assert first["limits"]
    assert 0 < first["confidence"] < 1


def test_failure_to_store_verdict_is_reported(verified, tmp_path):
    found = Verified(rule=FUSED, verdict=Verdict.FAILED, predicted=None, why="no")
    _, lines = verified(found, file=tmp_path)

    assert lines[:2] == [f"trying {FUSED}", f"{FUSED} failed"]
    assert str(tmp_path) in lines[2]


ARM = Arm(times=(0.1,) * 40, between=0.0, losses=(), memory=None)


@pytest.mark.parametrize(
    ("failures", "by_chance", "runs", "why"),
    [
        (0, True, 4, None),
        (1, True, 5, None),
        (2, True, 2, "a port was taken"),
        (1, False, 1, "a port was taken"),
    ],
)
def test_process_that_failed_by_chance_is_retried_once(recorded, monkeypatch, failures, by_chance, runs, why):
    left, ran = [failures], []

    def run_once(program, changes, out, steps, **how):
        if not (out / ENDED).exists():
            ran.append(out)
            out.mkdir(parents=True, exist_ok=True)
            (out / ENDED).touch()

    def read(out, log):
        if left[0]:
            left[0] -= 1
            raise TrialFailed("a port was taken", by_chance=by_chance)
        return ARM

    monkeypatch.setattr(trials, "run_once", run_once)
    monkeypatch.setattr(trials, "read", read)
    prepared = prepare(recorded(), allowed=(*EXACT, Safety.NUMERICS))
    found = prepared.trials.attempt(prepared.candidates[0], lambda *_: None)

    assert len(ran) == runs
    assert (found.verdict is Verdict.FAILED) is (why is not None)
    assert found.why == why or why is None
    # What failed by chance runs again when the same is requested; what would fail again does not.
    assert all((out / ENDED).exists() for out in ran) is not (why is not None and by_chance)


def test_command_names_option_if_nothing_can_be_tried(recorded, start):
    ran = start(*COMMAND, "verify", "--yes", recorded(), env={"PYTHONPATH": str(ROOT)}).finish()

    assert ran.status == 0
    assert b"--allow numerics tries it" in ran.err
