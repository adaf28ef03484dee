"""What is shown about a run. Renderers see nothing but a `Report`; result.json is its serialisation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, Literal

from advisor import pages
from advisor.anatomy import WhatIf, what_if
from advisor.calibration import Calibration
from advisor.environment import Group, environment
from advisor.judge import (
    ACTION_EXPECTED,
    NOISE_MARGIN,
    SUGGEST_EXPECTED,
    WINDOW_TOO_SHORT,
    Finding,
    Gain,
    Judgement,
    StepTime,
    Verdict,
)
from advisor.metrics import all_metrics, cost, memory, step
from advisor.metrics.base import Goals, Metric, Metrics, Missing, Need
from advisor.operations import Operations, operations
from advisor.profile import Profile
from advisor.ranks import FEW, MOST_ROWS, EachRank, Ranks, Spread, each_rank
from advisor.ranks import ranks as summed_up
from advisor.rules.base import Change, Fact, Source
from advisor.timeline import Chart, charts
from advisor.traces import Traced
from advisor.units import quantity, seconds, share, span
from advisor.verify.kept import Verified
from profiler.schema import BETWEEN, PHASES, Outcome, RegionFact
from profiler.version import __version__

LARGEST_SHARE = 10.0
"""Beside a limit that is a share, a value above 1 is told in per cent, too; above this it is a ratio of its own."""

NOTHING = 5e-4
"""A share of the step time that reads as zero."""

LARGE_OTHER = 2 * ACTION_EXPECTED
"""Share of the step from which everything else is worth a look: were half of it gone, that would be worth acting on."""

NOTABLE_TRACED = 0.05
"""Share of a trace's time from which it is worth a word in its first sentence."""

MOST_NOTES = 100
"""A thousand ranks may each say the same in other words."""

NO_DRIVER = "This machine has no NVIDIA driver"
"""How the one note begins that is as it should be: training on the CPU of a machine without a GPU."""

SCHEMA = "profile-train/result@1"

LABELS = {
    "data_wait": ("Waiting for data", "The loop asked for a batch and none was ready."),
    "loader_overhead": ("Taking the batch", "A batch was ready; handing it over took this long."),
    "h2d": ("Copying to the GPU", "Copies from host memory while the GPU had nothing else to do."),
    "forward": ("Forward", "The model's forward pass."),
    "backward": ("Backward", "Computing the gradients."),
    "optimizer": ("Optimizer", "The update of the parameters."),
    "communication": ("Communication", "Collectives between ranks while nothing was computed."),
    "sync": ("Synchronising", "The host waited for the GPU, and the GPU had nothing queued."),
    "gc": ("Garbage collection", "Python's garbage collector ran."),
    "other": ("Everything else", "What no other row holds: the loss, logging, metrics, callbacks."),
    "evaluation": ("Evaluation", "Passes without training, between the steps."),
    "checkpoint_save": ("Saving checkpoints", "torch.save, and safetensors, between the steps."),
    "epoch_start": ("Starting epochs", "Making the loader's iterator, its workers and the first batch."),
    "epoch_settling": (
        "Settling after epoch starts",
        "The first step takes longer while forked workers share its memory.",
    ),
    "epoch_gap": ("Between epochs", "The program's own work, or a pause, after an epoch and before the next."),
}

CONTRACT_PHASES = (
    "data_wait",
    "loader_overhead",
    "h2d",
    "forward",
    "backward",
    "optimizer",
    "communication",
    "sync",
    "checkpoint_save",
    "evaluation",
    "gc",
    "other",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """What was run, and how it ended."""

    command: tuple[str, ...] = ()
    cwd: str = ""
    exit_status: int | None = None
    signal: int | None = None
    ended: Outcome = "running"
    started: str = ""
    """ISO 8601, UTC."""
    duration: float | None = None
    ranks: int = 0
    nodes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """The steps of the primary rank; times in seconds, of the steady steps."""

    count: int
    steady: int | None = None
    micro_steps: float | None = None
    """Per step."""
    batches: float = 0.0
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    interval: tuple[float, float] | None = None
    """Of the mean, 95 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of the mean steady step, or (of run time) what falls between steps. None: not measured."""

    name: str
    seconds: float | None = None
    share: float | None = None

    @property
    def label(self) -> str:
        """For people."""
        return LABELS[self.name][0]

    @property
    def meaning(self) -> str:
        """In a sentence."""
        return LABELS[self.name][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPhases:
    """The mean steady step of one rank."""

    rank: int
    phases: tuple[Phase, ...]
    """Measured ones that take any time; shares of this rank's step."""

    @property
    def seconds(self) -> float:
        """Of the whole step."""
        return sum(phase.seconds or 0.0 for phase in self.phases)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A metric: its value, or what is missing and how to get it."""

    name: str
    label: str
    unit: str
    meaning: str
    value: float | None = None
    missing: str = ""
    remedy: str = ""

    @property
    def text(self) -> str:
        """The value with its unit."""
        return "not measured" if self.value is None else quantity(self.value, self.unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A fact the advice rests on: "value relation limit"."""

    metric: str
    label: str
    unit: str | None
    meaning: str
    value: float
    limit: float | None
    relation: str

    @property
    def text(self) -> str:
        """The value with its unit; as a share wherever the limit is one."""
        if self.unit == "1" and self.limit is not None and 0 < self.limit < 1 and 0 <= self.value <= LARGEST_SHARE:
            return share(self.value)
        return quantity(self.value, self.unit)

    @property
    def brief(self) -> str:
        """The first sentence of the metric's meaning."""
        first, dot, _ = self.meaning.partition(". ")
        return first + dot.strip()

    @property
    def limit_text(self) -> str:
        """The relation and the limit, or nothing."""
        return "" if self.limit is None else f"{self.relation} {quantity(self.limit, self.unit)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """One piece of advice, in the order of the plan."""

    rule: str
    severity: Literal["action", "suggest", "info"]
    title: str
    area: str
    condition: str
    """What was found, as a sentence that follows "If"."""
    note: str = ""
    evidence: tuple[Measured, ...] = ()
    then: str
    changes: tuple[Change, ...] = ()
    alone: Gain | None = None
    """Shares of the step time this change removes by itself."""
    in_plan: Gain | None = None
    """Shares it removes of what the ones before it have left."""
    cost: Gain | None = None
    """Shares of the training's cost that go; None where that is the share of the step time."""
    basis: str = ""
    memory: int | None = None
    """Bytes of GPU memory it adds or (negative) frees."""
    host_memory: int | None = None
    risk: str = ""
    wrong_when: str = ""
    effort: str = ""
    explanation: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    verified: Verified | None = None
    """What came of it when it was tried."""
    held_back: str = ""
    """Why this is information only though its gain would deserve more, in sentences; nothing where it is not so."""
    past: str = ""
    """What came of the rule's advice so far, on all runs, in sentences; nothing if it was never tried."""

    @property
    def tried_in_vain(self) -> bool:
        """A trial spoke against it."""
        return self.verified is not None and self.verified.verdict.is_against


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """How one rule ended."""

    rule: str
    title: str
    area: str
    outcome: Literal["fired", "passed", "not_measured", "crashed"]
    why: str = ""
    remedy: str = ""
    need: Need | None = None
    """What an answer is for want of; None where there is one, or the rule was switched off."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Those that it was asked with, by name."""

    @property
    def needs_a_gpu(self) -> bool:
        """Whether no other run on this machine would answer it."""
        return self.need is Need.GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPart:
    """Some of the device's memory at the peak of a step."""

    name: str
    label: str
    bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something the recording could not do, and how often."""

    source: str
    message: str
    count: int = 1

    @property
    def matters(self) -> bool:
        """Not, if it only says that the machine has no GPU."""
        return not (self.source == "nvml" and self.message.startswith(NO_DRIVER))


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """What the recording cost the program, self-measured; seconds are sums over the ranks."""

    fraction: float | None = None
    budget: float = 0.01
    hooks: float = 0.0
    windows: float = 0.0
    recorder_cpu: float | None = None
    events: int = 0
    events_lost: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that is shown."""

    version: str
    run: RunInfo
    steps: StepTimes | None = None
    phases: tuple[Phase, ...] = ()
    """Every one of CONTRACT_PHASES, measured or not, in their order."""
    by_rank: tuple[RankPhases, ...] = ()
    """Where there are several ranks, and few enough to be shown one by one."""
    between: tuple[Phase, ...] = ()
    """Shares of run time."""
    regions: tuple[RegionFact, ...] = ()
    """What the program named, of the first rank; longest first."""
    advice: tuple[Recommendation, ...] = ()
    before: float | None = None
    """Seconds of the mean step, with its part of what falls between steps."""
    after: StepTime | None = None
    """The same with the plan followed, information left aside."""
    checked: tuple[Checked, ...] = ()
    quantities: tuple[Quantity, ...] = ()
    memory: tuple[MemoryPart, ...] = ()
    memory_total: float | None = None
    what_if: WhatIf | None = None
    """What may be asked of that memory; None where its parts were not measured."""
    memory_missing: str = ""
    """Why its parts are not known and how to get them; nothing where they are, or where nothing trains on a GPU."""
    operations: Operations | None = None
    ranks: Ranks | None = None
    """Where there are many."""
    each_rank: EachRank = field(default_factory=EachRank)
    charts: tuple[Chart, ...] = ()
    problems: tuple[Note, ...] = ()
    environment: tuple[Group, ...] = ()
    overhead: Overhead = field(default_factory=Overhead)
    goals: Goals = field(default_factory=Goals)
    gpu_hours: float | None = None
    applied: tuple[Verified, ...] = ()
    """Changes that this run was made with, as they were tried one after the other."""
    traces: tuple[Traced, ...] = ()
    """What others' traces told; empty of a run of our own."""

    @property
    def verdict(self) -> str:
        """The whole report in a sentence or two."""
        return f"{self.diagnosis} {self.counsel}".strip()

    @property
    def diagnosis(self) -> str:
        """Where the time goes."""
        steps = self.steps
        if self.traces:
            return self._of_traces
        if not steps or not steps.count:
            return f"No training step was seen{self._ending}, so there is nothing to judge yet."
        if steps.mean is None:
            return f"Training steps seen: {steps.count:,}. That is too few to judge by."
        most = max(self.phases, key=lambda phase: phase.share or 0.0, default=None)
        if most is None or not most.share:
            return f"A step takes {seconds(steps.mean)}."
        inside = _INSIDE[most.name] if self.loader_watched or most.name != "other" else _INSIDE_UNWATCHED
        caution = _UNWATCHED if self.loader_watched is False else ""
        return f"A step takes {seconds(steps.mean)}, {share(most.share)} of it {inside}.{caution}"

    @property
    def counsel(self) -> str:
        """What to do first."""
        if self.traces and (not self.steps or self.steps.mean is None):
            return "" if self.steps else _UNMARKED
        if not self.steps or not self.steps.count:
            return _UNSEEN if self.run.ranks else _UNSEEN + _KEPT_OUT
        if self.steps.mean is None:
            return ""
        first = next((item for item in self.advice if item.severity != "info" and not item.tried_in_vain), None)
        if first is None:
            return self._without_plan
        tried = first.verified
        if tried and tried.verdict.is_kept and tried.removed:
            return f"Begin with this: {_inside(first.title)}, for {gain_text(Gain(*tried.removed))}, as measured."
        gains = ((first.in_plan, "step time"), (first.cost, "cost"))
        promise = next((f", for {gain_text(gain, of)}" for gain, of in gains if gain and gain.expected > 0), "")
        return f"Begin with this: {_inside(first.title)}{promise}."

    @property
    def _without_plan(self) -> str:
        """Where nothing is to be done: whether there was nothing to find, or it could not be told."""
        for item in self.advice:
            if item.in_plan and item.in_plan.expected >= SUGGEST_EXPECTED and not item.tried_in_vain:
                return f"Nothing is certain enough to insist on. For information: {_inside(item.title)}."
        nothing = "No change worth making was found"
        short = next((item for item in self.advice if item.rule == WINDOW_TOO_SHORT), None)
        if short is None:
            return f"{nothing}."
        scatter = next((m.value for m in short.evidence if m.metric == step.typical_step_uncertainty.name), None)
        if scatter is None:
            return f"{nothing}, but too few steps were recorded to be sure."
        return (
            f"{nothing}; this run's steps vary so much that gains below {share(NOISE_MARGIN * scatter)} would not show."
        )

    @property
    def loader_watched(self) -> bool | None:
        """Whether waiting for data is told from everything else; None if no DataLoader was seen, False if one could
        not be watched."""
        if any(note.source == LOADER_HOOK for note in self.problems):
            return False
        return any(phase.name == "data_wait" and phase.share is not None for phase in self.phases) or None

    @property
    def extended(self) -> bool:
        """Whether `before` and `after` hold a part of what falls between steps, and read as more than the mean step."""
        mean = self.steps.mean if self.steps else None
        return bool(mean and self.before and seconds(self.before) != seconds(mean))

    @property
    def prospect(self) -> str:
        """What the plan makes of a step, in a sentence; nothing where it makes nothing faster."""
        if not self.before or not self.after or self.after.expected >= self.before:
            return ""
        return f"{self.what_a_step_is}: {seconds(self.before)} now, {seconds(self.after.expected)} after the plan."

    @property
    def inside_other(self) -> str:
        """How to look into what no other phase holds, where that is much of the step; nothing where it is not."""
        other = next((phase for phase in self.phases if phase.name == "other"), None)
        if other is None or (other.share or 0.0) < LARGE_OTHER:
            return ""
        return (
            f"{other.label} takes {share(other.share or 0.0)} of the step. To see what that is, put "
            f'{"more " if self.regions else ""}parts of the loop under: with profiler.region("NAME"). Record again.'
        )

    @property
    def assumed(self) -> str:
        """What stands in for goals that were not declared, in a sentence; nothing where all that matters was."""
        instead = [
            *(["throughput counts most"] if self.goals.goal is None else []),
            *(["no larger batch or model is wanted"] if not self.goals.more_memory else []),
            *(["the quality must stay as it is"] if self.goals.quality is None else []),
        ]
        return f"Assumed, because not declared: {_listed(instead)}." if instead else ""

    @property
    def what_a_step_is(self) -> str:
        """The step that `before` and `after` are of."""
        if not self.extended:
            return "A step"
        parts = [_BETWEEN_INSIDE[phase.name] for phase in self.between if phase.share]
        return f"A step with its share of {_listed(parts or list(_BETWEEN_INSIDE.values()))}"

    @property
    def _of_traces(self) -> str:
        """Of the rank whose GPU idles most."""
        busy = [each for each in self.traces if each.idle is not None]
        if not busy:
            mean = self.steps.mean if self.steps else None
            several = len(self.traces) > 1
            holds, spans = ("These traces hold", "they span") if several else ("This trace holds", "it spans")
            told = f"a step takes {seconds(mean)}" if mean else f"{spans} {seconds(self.traces[0].seconds)}"
            return f"{holds} no GPU work; {told}."
        worst = max(busy, key=lambda each: each.idle or 0.0)
        parts = {part.name: part for part in worst.parts}
        of = [f"computes for {share(parts['compute'].share)} of the time"]
        for name, does in (("communication_exposed", "communicates"), ("memory_exposed", "moves memory")):
            if parts[name].share >= NOTABLE_TRACED:
                of.append(f"only {does} for {share(parts[name].share)}")
        if (worst.idle or 0.0) >= NOTABLE_TRACED:
            why = max(_IDLE, key=lambda name: parts[name].share)
            of.append(f"idles for {share(worst.idle or 0.0)}, mostly {_IDLE[why]}")
        whose = f" of rank {worst.rank}" if len(self.traces) > 1 else ""
        return f"The GPU{whose} {_listed(of)}."

    @property
    def _ending(self) -> str:
        return f" before {_ENDED[self.run.ended]}" if self.run.ended in _ENDED else ""

    def checks(self, *outcomes: str) -> tuple[Checked, ...]:
        """The rules that ended in one of these ways."""
        return tuple(check for check in self.checked if check.outcome in outcomes)

    @property
    def unanswered(self) -> str:
        """How many rules could not be answered, and for want of what; nothing where all could."""
        needs = Counter(check.need for check in self.checks("not_measured"))
        if not needs:
            return ""
        parts = [
            f"{needs[need]} {one if needs[need] == 1 else several} {what}"
            for need, (one, several, what) in _NEEDS.items()
            if needs[need]
        ]
        return f"{needs.total()} of {len(self.checked)} rules could not be checked: {_listed(parts)}."

    def result(self) -> dict[str, Any]:
        """result.json: the contract docs/result.schema.json describes."""
        shares = {phase.name: phase.share for phase in self.phases}
        return {
            "schema": SCHEMA,
            "run": {
                "command": list(self.run.command),
                "exit_status": self.run.exit_status,
                "ended": self.run.ended,
                "started": self.run.started,
                "duration_s": self.run.duration,
                "ranks": self.run.ranks,
                "nodes": self.run.nodes,
            },
            "steps": _steps_result(self.steps or StepTimes(count=0)),
            "phases": {name: shares.get(name) for name in CONTRACT_PHASES},
            "ranks": _ranks_result(self.each_rank),
            "regions": [{"name": one.name, "passes": one.count, "time_s": one.seconds} for one in self.regions],
            "metrics": {q.name: _quantity_result(q) for q in self.quantities},
            "advice": [_advice_result(item) for item in self.advice],
            "verdicts": [
                {
                    "rule": c.rule,
                    "outcome": c.outcome,
                    "why": c.why,
                    "remedy": c.remedy,
                    "needs": c.need and c.need.value,
                    "limits": dict(c.limits),
                }
                for c in self.checked
            ],
            "goals": {
                "declared": {name: value for name, value in asdict(self.goals).items() if value not in (None, False)},
                "assumed": self.assumed,
            },
            "overhead": {
                "fraction": self.overhead.fraction,
                "hooks_s": self.overhead.hooks,
                "windows_s": self.overhead.windows,
                "recorder_cpu_s": self.overhead.recorder_cpu,
                "events_lost": self.overhead.events_lost,
            },
            "environment": {
                **{group.name: {row.name: row.value for row in group.rows} for group in self.environment},
                "problems": [{"source": n.source, "message": n.message} for n in self.problems if n.matters],
            },
            **({"traces": [_traced_result(each) for each in self.traces]} if self.traces else {}),
        }


_ENDED = {"failed": "the run failed", "killed": "the run was killed", "attached": "the recording ended"}

_INSIDE = {
    "data_wait": "waiting for data",
    "loader_overhead": "taking batches from the loader",
    "h2d": "copying to the GPU",
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "optimizer": "in the optimizer",
    "communication": "in communication between ranks",
    "sync": "waiting for the GPU with nothing queued",
    "gc": "in Python's garbage collector",
    "other": "outside the model, its loader and its optimizer",
}

_INSIDE_UNWATCHED = "outside the model and its optimizer"

_UNWATCHED = " Its DataLoader could not be watched: waiting for data may be part of that."

_BETWEEN_INSIDE = {
    "evaluation": "evaluation",
    "checkpoint_save": "saving",
    "epoch_start": "epoch starts",
    "epoch_settling": "settling after these",
    "epoch_gap": "what lies between epochs",
}

_UNSEEN = (
    "No torch optimizer made a step while the run was recorded. "
    "A training loop without one must call profiler.step() at the end of each iteration."
)

_KEPT_OUT = (
    " Python's options -I, -E and -S keep the recording out, and so does starting the program with a fresh environment."
)

_IDLE = {
    "idle_data": "because the host fetched a batch",
    "idle_sync": "because the host had waited for the GPU",
    "idle_launch": "because the host launched late",
    "idle_queued": "though work was queued",
}

_UNMARKED = (
    "The trace marks no steps, so nothing can be said of one: call prof.step() once in each iteration of the loop."
)

LOADER_HOOK = "dataloader"
"""What a problem with the watching of DataLoaders has as its source."""


_NEEDS: dict[Need | None, tuple[str, str, str]] = {
    Need.GPU: ("needs", "need", "a GPU to train on"),
    Need.RANKS: ("needs", "need", "several ranks"),
    Need.DECLARATION: ("needs", "need", "a goal to be declared (profile-train report --help-all)"),
    Need.RUN: ("needs", "need", "something that this run did not show"),
    None: ("is", "are", "switched off"),
}
"""Why a rule was not answered, in words: of one, of several, the rest."""


def _listed(words: Sequence[str]) -> str:
    """As "a, b and c"."""
    return " and ".join([*([", ".join(words[:-1])] if words[:-1] else []), words[-1]])


def _inside(title: str) -> str:
    """A title within a sentence."""
    return f"{title[:1].lower()}{title[1:]}"


def gain_text(gain: Gain, of: str = "step time") -> str:
    """As "40 to 62% less step time"; more, where a change takes more of it."""
    if max(abs(gain.low), abs(gain.high)) < NOTHING:
        return "nothing"
    if gain.high < 0:
        return f"{span(-gain.high, -gain.low)} more {of}"
    if gain.low < 0 < gain.high:
        return f"{share(-gain.low)} more to {share(gain.high)} less {of}"
    return f"{span(gain.low, gain.high)} less {of}"


def build(
    profile: Profile,
    judgement: Judgement,
    metrics: Metrics,
    verified: Mapping[str, Verified] | None = None,
    past: Calibration | None = None,
    traces: Sequence[Traced] = (),
) -> Report:
    """Put together what was recorded or traced, measured, judged and, by rule, tried: on this run, and on all in the
    `past`."""
    known = (verified or {}).values()
    tried = {each.rule: each for each in known if not each.applied}
    quantities = tuple(_quantity(one, metrics) for one in all_metrics() if one.unit is not None)
    asked, memory_missing = _what_if(metrics)
    many = None if traces else summed_up(metrics, profile)
    return Report(
        version=profile.runs[0].version if profile.runs else __version__,
        run=_run_of_traces(traces) if traces else _run(profile),
        steps=_steps(profile, metrics),
        phases=_phases(metrics),
        by_rank=_by_rank(metrics) if many is None else (),
        between=_between(metrics),
        regions=_regions(profile),
        advice=tuple(
            _recommendation(finding, tried.get(finding.rule.id), (past or Calibration()).story(finding.rule.id))
            for finding in judgement.findings
        ),
        before=judgement.before,
        after=judgement.after,
        checked=tuple(_checked(verdict) for verdict in judgement.verdicts),
        quantities=quantities,
        memory=_memory(metrics),
        memory_total=max((gpu.memory_total for gpu in profile.gpus), default=None),
        what_if=asked,
        memory_missing="" if traces else memory_missing,
        operations=operations(profile),
        ranks=many,
        each_rank=each_rank(metrics, profile),
        charts=() if traces and len(profile.ranks[0].steps) < 2 else charts(profile, _drawn(profile, many)),
        problems=_problems(profile),
        environment=environment(profile),
        overhead=_overhead(profile),
        goals=metrics.goals,
        gpu_hours=metrics.get(cost.gpu_hours),
        applied=tuple(each for each in known if each.applied),
        traces=tuple(traces),
    )


def _run_of_traces(traces: Sequence[Traced]) -> RunInfo:
    """A stretch of a run that somebody else watched."""
    return RunInfo(
        command=tuple(each.file for each in traces),
        ended="attached",
        duration=max(each.seconds for each in traces),
        ranks=len(traces),
    )


def _run(profile: Profile) -> RunInfo:
    if not profile.runs:
        return RunInfo()
    run = profile.runs[0]
    return RunInfo(
        command=run.command,
        cwd=run.cwd,
        exit_status=run.exit_status,
        signal=run.signal,
        ended=run.outcome,
        started=datetime.fromtimestamp(run.started_at, timezone.utc).isoformat(timespec="seconds"),
        duration=run.duration,
        ranks=sum(1 for rank in profile.ranks if rank.process.role == "rank"),
        nodes=max(len({run.host for run in profile.runs}), len({rank.process.node_rank for rank in profile.ranks})),
    )


def _steps(profile: Profile, metrics: Metrics) -> StepTimes | None:
    """The primary rank's; None if nothing trained."""
    steps = profile.ranks[0].steps if profile.ranks else ()
    if not steps:
        return None
    return StepTimes(
        count=sum(one.count for one in steps),
        steady=metrics.get(step.steady_step_count),
        micro_steps=metrics.get(step.micro_steps_per_step),
        batches=sum(one.batches * one.count for one in steps),
        mean=metrics.get(step.step_time_mean),
        p50=metrics.get(step.step_time_p50),
        p90=metrics.get(step.step_time_p90),
        p99=metrics.get(step.step_time_p99),
        interval=metrics.get(step.step_time_ci),
    )


def _phases(metrics: Metrics) -> tuple[Phase, ...]:
    """Seconds and shares of the mean steady step."""
    mean = metrics.get(step.step_time_mean)
    measured = metrics.get(step.phase_seconds)
    measured = {} if measured is None else {**measured}
    steady = metrics.get(step.steady_steps) or ()
    for name in set(BETWEEN) & set(CONTRACT_PHASES):
        # Steady steps hold no such work, or they would not be steady; this tells "none" from "not measured".
        if any(getattr(one, name) is not None for one in steady):
            measured[name] = 0.0
    return tuple(
        Phase(name=name, seconds=measured.get(name), share=measured[name] / mean if mean and name in measured else None)
        for name in CONTRACT_PHASES
    )


def _by_rank(metrics: Metrics) -> tuple[RankPhases, ...]:
    measured = metrics.get(step.phase_seconds_by_rank) or {}
    if not 1 < len(measured) <= FEW:
        return ()
    return tuple(
        RankPhases(
            rank=rank,
            phases=tuple(
                Phase(name=name, seconds=phases[name], share=phases[name] / sum(phases.values()))
                for name in CONTRACT_PHASES
                if phases.get(name)
            ),
        )
        for rank, phases in sorted(measured.items())
    )


def _between(metrics: Metrics) -> tuple[Phase, ...]:
    """Shares of run time."""
    shares = {
        "evaluation": metrics.get(step.evaluation_share),
        "checkpoint_save": metrics.get(step.checkpoint_save_share),
        "epoch_start": metrics.get(step.epoch_start_share),
    }
    beside = {"epoch_settling": metrics.get(step.epoch_settling_share), "epoch_gap": metrics.get(step.epoch_gap_share)}
    shares |= {name: value for name, value in beside.items() if value is not None and value >= NOTHING}
    return tuple(Phase(name=name, share=value) for name, value in shares.items())


def _regions(profile: Profile) -> tuple[RegionFact, ...]:
    named = profile.ranks[0].regions if profile.ranks else ()
    return tuple(sorted((region for region in named if region.count), key=lambda region: -region.seconds))


def _meaning(one: Metric[Any]) -> str:
    """The docstring as running text."""
    return " ".join(one.doc.replace("`", "").split())


def _quantity(one: Metric[Any], metrics: Metrics) -> Quantity:
    about = Quantity(name=one.name, label=one.label, unit=one.unit or "", meaning=_meaning(one))
    try:
        value = metrics[one]
    except Missing as missing:
        return replace(about, missing=missing.what, remedy=missing.remedy)
    if not math.isfinite(value):
        return replace(about, missing="It has no finite value", remedy="Record for longer.")
    return replace(about, value=value)


def _recommendation(finding: Finding, verified: Verified | None, past: str) -> Recommendation:
    rule, advice = finding.rule, finding.advice
    return Recommendation(
        rule=rule.id,
        severity=finding.severity.value,
        title=rule.title,
        area=pages.TIERS[rule.tier],
        condition=pages.condition(rule),
        note=finding.evidence.note,
        evidence=tuple(_measured(fact) for fact in finding.evidence.facts),
        then=advice.then,
        changes=advice.changes,
        alone=finding.alone,
        in_plan=finding.in_plan,
        cost=finding.cost,
        basis=advice.basis,
        memory=advice.memory,
        host_memory=advice.host_memory,
        risk=advice.risk,
        wrong_when=pages.wrong_when(rule),
        effort=pages.DIFFICULTIES[rule.difficulty],
        explanation=pages.explanation(rule),
        sources=rule.sources,
        verified=verified,
        held_back=finding.held_back,
        past=past,
    )


def _checked(verdict: Verdict) -> Checked:
    return Checked(
        rule=verdict.rule.id,
        title=verdict.rule.title,
        area=pages.TIERS[verdict.rule.tier],
        outcome=verdict.outcome.value,
        why=verdict.why,
        remedy=verdict.remedy or "",
        need=verdict.need,
        limits=verdict.rule.in_force,
    )


def _measured(fact: Fact) -> Measured:
    return Measured(
        metric=fact.metric.name,
        label=fact.metric.label,
        unit=fact.metric.unit,
        meaning=_meaning(fact.metric),
        value=fact.value,
        limit=fact.limit,
        relation=fact.relation,
    )


def _memory(metrics: Metrics) -> tuple[MemoryPart, ...]:
    """Parts of the peak that were measured."""
    parts = (
        ("params", "Parameters", memory.mem_params),
        ("grads", "Gradients", memory.mem_grads),
        ("optim", "Optimizer state", memory.mem_optim),
        ("activations", "Activations and the rest", memory.mem_activations),
        ("nontorch", "Outside PyTorch", memory.mem_nontorch),
    )
    return tuple(
        MemoryPart(name=name, label=label, bytes=value)
        for name, label, one in parts
        if (value := metrics.get(one)) is not None
    )


def _what_if(metrics: Metrics) -> tuple[WhatIf | None, str]:
    """And why it is missing, unless it is for want of a GPU."""
    try:
        return what_if(metrics), ""
    except Missing as missing:
        trained = metrics.get(step.step_time_mean) is not None
        return None, f"{missing.what}. {missing.remedy}" if trained and missing.need is not Need.GPU else ""


def _drawn(profile: Profile, many: Ranks | None) -> dict[int, str]:
    """Which of many ranks are drawn over time, and what each is: the first, the typical ones, those that stand out."""
    if many is None:
        return {}
    drawn = {profile.ranks[0].process.rank: ""}
    for what, number in many.typical:
        drawn[number] = f" ({what})"
    for one in many.named:
        drawn.setdefault(one.rank, "")
    return dict(list(drawn.items())[:FEW])


def _problems(profile: Profile) -> tuple[Note, ...]:
    """Each once, however often it was noted."""
    counted = Counter((problem.source, problem.message) for problem in profile.problems)
    notes = [Note(source=source, message=message, count=count) for (source, message), count in counted.items()]
    overhead = _overhead(profile)
    if overhead.events_lost:
        of = overhead.events + overhead.events_lost
        lost = f"{overhead.events_lost:,} of {of:,} events were lost, so some steps are told wrong or not at all."
        notes.insert(0, Note(source="ring", message=lost))  # of the problems, what matters most
    notes.sort(key=lambda note: note.source != "end")  # how the program ended is wanted first
    if len(notes) > MOST_NOTES:
        rest = f"{len(notes) - MOST_NOTES:,} more notes are left out here; the recordings hold them."
        notes[MOST_NOTES:] = [Note(source="report", message=rest)]
    return tuple(notes)


def _overhead(profile: Profile) -> Overhead:
    """Time in our hooks and windows, over the time the ranks ran."""
    processes = [rank.process for rank in profile.ranks]
    everyone = [*processes, *(worker for rank in profile.ranks for worker in rank.workers)]
    end = max((run.duration or 0.0 for run in profile.runs), default=0.0)
    ran = sum(max(0.0, (end if process.ended is None else process.ended) - process.started) for process in processes)
    hooks, windows = sum(p.hooks for p in processes), sum(p.windows for p in processes)
    cpu = [run.recorder_cpu for run in profile.runs if run.recorder_cpu is not None]
    return Overhead(
        fraction=(hooks + windows) / ran if ran > 0 else None,
        budget=profile.runs[0].budget if profile.runs else 0.01,
        hooks=hooks,
        windows=windows,
        recorder_cpu=sum(cpu) if cpu else None,
        events=sum(process.events for process in everyone),
        events_lost=sum(process.events_lost for process in everyone),
    )


def _steps_result(steps: StepTimes) -> dict[str, Any]:
    return {
        "count": steps.count,
        "micro_steps_per_step": steps.micro_steps,
        "batches": steps.batches,
        "time_s": {
            "mean": steps.mean,
            "p50": steps.p50,
            "p90": steps.p90,
            "p99": steps.p99,
            "mean_ci95": list(steps.interval) if steps.interval else None,
        },
    }


def _ranks_result(ranks: EachRank) -> dict[str, Any]:
    def spread(found: Spread | None) -> dict[str, float] | None:
        return found._asdict() if found else None

    return {
        "count": ranks.count,
        "unseen": {"count": len(ranks.unseen), "first": list(ranks.unseen[:MOST_ROWS])},
        "step_time_s": spread(ranks.step_times),
        "memory_peak_bytes": spread(ranks.memory_peaks),
        "each": [
            {
                "rank": one.rank,
                "node": one.node,
                "host": one.host,
                "steps": one.steps,
                "step_time_s": one.step_time,
                "phases_s": {name: one.phases.get(name) for name in PHASES},
                "memory_peak_bytes": one.memory_peak,
                "events_lost": one.events_lost,
                "remark": one.remark,
            }
            for one in ranks.rows
        ],
    }


def _quantity_result(one: Quantity) -> dict[str, Any]:
    if one.value is None:
        return {"missing": one.missing, "remedy": one.remedy}
    return {"value": one.value, "unit": one.unit}


def _gain_result(gain: Gain | None) -> dict[str, float] | None:
    return {"low": gain.low, "expected": gain.expected, "high": gain.high} if gain else None


def _change_result(change: Change) -> dict[str, Any]:
    return {
        "language": change.language,
        "file": change.file,
        "line": change.line,
        "code": change.code,
        "differences": [{"name": d.name, "before": d.before, "after": d.after} for d in change.differences],
    }


def _advice_result(item: Recommendation) -> dict[str, Any]:
    saving = item.in_plan.saving if item.in_plan else None
    return {
        "rule": item.rule,
        "severity": item.severity,
        "title": item.title,
        "if": item.condition,
        "then": item.then,
        "evidence": [{"metric": m.metric, "value": m.value, "limit": m.limit} for m in item.evidence],
        "change": [_change_result(change) for change in item.changes],
        "gain": {
            "step_time_removed": _gain_result(item.alone),
            "in_plan": _gain_result(item.in_plan),
            "cost_removed": _gain_result(item.cost),
            "basis": item.basis,
            "gpu_hours": saving.gpu_hours if saving else None,
            "money": saving.money if saving else None,
        },
        "memory_bytes": item.memory,
        "risk": item.risk,
        "verified": _verified_result(item.verified) if item.verified else None,
        "held_back": item.held_back,
        "past": item.past,
    }


def _verified_result(tried: Verified) -> dict[str, Any]:
    return {
        "verdict": tried.verdict.value,
        "predicted": _gain_result(Gain(*tried.predicted) if tried.predicted else None),
        "step_time_removed": _gain_result(Gain(*tried.removed) if tried.removed else None),
        "step_time_s": {"before": tried.seconds[0], "after": tried.seconds[1]} if tried.seconds else None,
        "memory_bytes": tried.memory,
        "losses_agree": tried.losses_agree,
        "steps": tried.steps,
        "processes": tried.processes,
        "why": tried.why,
        "not_tried": tried.leaves,
    }


def _traced_result(one: Traced) -> dict[str, Any]:
    return {
        "rank": one.rank,
        "file": one.file,
        "events": one.events,
        "steps": one.steps,
        "duration_s": one.seconds,
        "time": {part.name: part.share for part in one.parts} or None,
        "communication_overlap": one.overlap,
        "queue": asdict(one.queue) if one.queue else None,
        "launches": asdict(one.launches) if one.launches else None,
        "kinds": {kind.name: kind.share for kind in one.kinds} or None,
        "tensor_cores": one.tensor_cores,
        "critical_path_s": {part.name: part.seconds for part in one.critical} or None,
        "collectives": [asdict(each) for each in one.exchanges],
    }
