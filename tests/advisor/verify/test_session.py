"""What of a run's advice is tried, and what is said where nothing can be."""

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
    """A run of a program whose optimizer takes half of the step, and could be fused."""

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


def test_what_is_not_allowed_is_named_with_its_remedy(recorded):
    prepared = prepare(recorded())

    assert prepared.candidates == ()
    assert [left.split(":")[0] for left in prepared.left_out] == [FUSED]
    assert "--allow numerics" in prepared.left_out[0]


def test_what_is_allowed_is_announced_with_what_it_takes(recorded):
    prepared = prepare(recorded(), allowed=(*EXACT, Safety.NUMERICS))

    assert [finding.rule.id for finding in prepared.candidates] == [FUSED]
    text = session.announcement(prepared)
    expected = prepared.candidates[0].alone.expected
    # To the first step 1 s, and what is around a process; 5.5 s of steps as they are, and with the prediction.
    takes = LONGER * (4 * (1 + AROUND) + 2 * 5.5 * (2 - expected))
    assert f"  {FUSED}: 4 runs of 55 steps, about {seconds(takes)}" in text


@pytest.mark.parametrize("how", [{}, {"network": True}, {"in_place": True}])
def test_before_the_first_run_the_network_is_spoken_of(recorded, how):
    text = session.announcement(session.prepare(recorded(), (), TrialChoices(allowed=EXACT, processes=2, **how)))

    assert ("--network" in text) is not bool(how)


def test_a_run_that_was_made_with_changes_is_tried_with_them(recorded, tmp_path):
    folder, file = recorded(), tmp_path / "kept.toml"
    file.write_text("[[change]]\nname = 'flags'\n[change.settings]\ncudnn_benchmark = true\n")
    assert prepare(folder).trials.changes == ()

    tuned.keep(file, folder)
    (change,) = prepare(folder).trials.changes
    assert (change.name, change.settings) == ("flags", {"cudnn_benchmark": True})
    assert (folder / tuned.FILE).stat().st_mode & 0o777 == 0o600


def test_a_rule_that_said_nothing_is_not_tried(recorded):
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
def test_a_run_that_cannot_be_run_again_is_told_in_a_sentence(recorded, changes, rules, message):
    with pytest.raises(ProfilerError, match=message) as caught:
        prepare(recorded(**changes), *rules)
    assert caught.value.remedy


def test_what_a_refuted_rule_came_before_is_tried_next(recorded):
    """And the refuted one again, with its model's prediction: the program may be another by now."""
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


def test_a_tuning_goes_on_with_what_a_refuted_rule_came_before(recorded, tmp_path, monkeypatch):
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
def test_what_has_been_tried_to_its_end_is_tried_anew(recorded, monkeypatch, before, is_kept):
    """Runs of an inconclusive trial count on: more of them are what it needs."""
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
    """Every trial ends as given; the verdict goes to a calibration file."""

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


def test_every_verdict_is_kept_once_with_what_the_prediction_was_made_from(verified):
    found = Verified(rule=FUSED, verdict=Verdict.REFUTED, predicted=(0.1, 0.2, 0.3), removed=(-0.01, 0.0, 0.01))
    file, _ = verified(found, times=2)

    (tried,) = read_calibration(file)[0].tried
    assert (tried.rule, tried.verdict, tried.removed) == (FUSED, Verdict.REFUTED, (-0.01, 0.0, 0.01))
    first, second = map(json.loads, file.read_text().splitlines())
    # The first verdict made the second prediction wider; what is kept is the model's own.
    assert first["predicted"] == second["predicted"]
    assert first["evidence"]["optimizer_fraction"] == pytest.approx(0.5)
    assert first["limits"]
    assert 0 < first["confidence"] < 1


def test_a_verdict_that_cannot_be_kept_is_told(verified, tmp_path):
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
def test_what_befell_a_process_is_given_a_second_chance(recorded, monkeypatch, failures, by_chance, runs, why):
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
    # What failed by chance is run again when the same is asked for; what would fail again is not.
    assert all((out / ENDED).exists() for out in ran) is not (why is not None and by_chance)


def test_the_command_says_what_to_name_where_there_is_nothing_to_try(recorded, start):
    ran = start(*COMMAND, "verify", "--yes", recorded(), env={"PYTHONPATH": str(ROOT)}).finish()

    assert ran.status == 0
    assert b"--allow numerics tries it" in ran.err
