"""What of a run's advice is tried, and what is said where nothing can be."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from profiles import RUN
from programs import COMMAND, ROOT

from advisor.rules.base import Safety
from advisor.verify import kept, session
from advisor.verify.kept import Verified
from advisor.verify.trials import Trials, order
from advisor.verify.verdict import Verdict
from profiler.agent.redact import HIDDEN
from profiler.errors import ProfilerError
from profiler.schema import Fact, FlagsFact, OptimizerFact, Process, Step
from profiler.store import Writer

EXACT = (Safety.EXACT,)
FUSED = "optimizer-fused"


@pytest.fixture
def recorded(tmp_path):
    """A run of a program whose optimizer takes half of the step, and could be fused."""

    def write(**changes):
        folder = tmp_path / "run"
        writer = Writer(folder, "h")
        writer.put(replace(RUN, **{"cwd": str(tmp_path), **changes}))
        writer.put(Process(pid=1, started=0.5))
        columns = {"forward": 0.02, "backward": 0.03, "optimizer": 0.05}
        writer.append([Step(pid=1, index=i, start=1 + i / 10, duration=0.1, **columns) for i in range(100)])
        adam = OptimizerFact(id=1, name="Adam", module="torch.optim.adam", tensors=500, device="cpu", floating=True)
        for kind, fact in (("optimizer", adam), ("flags", FlagsFact())):
            writer.put(Fact(pid=1, time=1.0, kind=kind, body=asdict(fact)))
        writer.close()
        return folder

    (tmp_path / "run").mkdir()
    return write


def prepare(folder, *rules, allowed=EXACT):
    return session.prepare(folder, rules, allowed, processes=2)


def test_what_is_not_allowed_is_named_with_its_remedy(recorded):
    prepared = prepare(recorded())

    assert prepared.candidates == ()
    assert prepared.left_out == (f"{FUSED}: it changes more than speed; --allow numerics tries it.",)


def test_what_is_allowed_is_announced_with_what_it_takes(recorded):
    prepared = prepare(recorded(), allowed=(*EXACT, Safety.NUMERICS))

    assert [finding.rule.id for finding in prepared.candidates] == [FUSED]
    told = session.announcement(prepared)
    assert f"  {FUSED}: 4 runs of 55 steps, about 62 s" in told
    assert "nothing of yours is changed" in told


def test_a_rule_that_said_nothing_is_not_tried(recorded):
    assert "precision-bf16: it was not advised." in prepare(recorded(), "precision-bf16").left_out


@pytest.mark.parametrize(
    ("changes", "rules", "message"),
    [
        ({"command": ()}, (), "does not tell what was run"),
        ({"command": ("train.py", f"--key={HIDDEN}")}, (), "secret was left out"),
        ({"cwd": "/gone/folder"}, (), "folder it ran in is gone"),
        ({}, ("no-such-rule",), "no rule 'no-such-rule'"),
    ],
)
def test_a_run_that_cannot_be_run_again_is_told_in_a_sentence(recorded, changes, rules, message):
    with pytest.raises(ProfilerError, match=message) as caught:
        prepare(recorded(**changes), *rules)
    assert caught.value.remedy


def test_arms_take_turns_at_being_first():
    assert list(order(3)) == [False, True, True, False, False, True]


class Told:
    def __init__(self):
        self.lines = []

    def trying(self, trials, finding):
        self.lines.append(f"trying {finding.rule.id}")

    def running(self, what, done, of):
        pass

    def tried(self, finding, found):
        self.lines.append(f"{finding.rule.id} {found.verdict.value}")


@pytest.mark.parametrize(
    ("before", "is_kept"), [(Verdict.CONFIRMED, False), (Verdict.FAILED, False), (Verdict.INCONCLUSIVE, True)]
)
def test_what_has_been_tried_to_its_end_is_tried_anew(recorded, monkeypatch, before, is_kept):
    """Runs of an inconclusive trial count on: more of them are what it needs."""
    prepared = prepare(recorded(), allowed=(*EXACT, Safety.NUMERICS))
    old = prepared.folder / f"trials/{FUSED}-55/without-1/ended"
    old.parent.mkdir(parents=True)
    old.touch()
    other = Verified(rule="other", verdict=Verdict.PARTIAL, predicted=None)
    kept.write(prepared.folder, {"other": other, FUSED: replace(other, rule=FUSED, verdict=before)})

    found = Verified(rule=FUSED, verdict=Verdict.BETTER, predicted=(0.1, 0.2, 0.3))
    monkeypatch.setattr(Trials, "attempt", lambda *_: found)
    told = Told()
    prepared.carry_out(told)

    assert old.exists() is is_kept
    assert kept.read(prepared.folder) == {"other": other, FUSED: found}
    assert told.lines == [f"trying {FUSED}", f"{FUSED} better"]


def test_the_command_says_what_to_name_where_there_is_nothing_to_try(recorded, start):
    ran = start(*COMMAND, "verify", "--yes", recorded(), env={"PYTHONPATH": str(ROOT)}).finish()

    assert ran.status == 1
    assert b"--allow numerics tries it" in ran.err
    assert b"There is nothing to try." in ran.err
