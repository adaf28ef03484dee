"""Check every rule against a run's metrics and order the advice of those that fire into a plan.

Gains are never added. The plan walks the advice in order, applies each change to the step that the changes before it
leave, and recomputes the floors. A change whose gain another change already brought becomes information only.

The order is by area, and within an area by score. A declared goal changes it. For cost, areas do not matter after
validity: advice that saves the most GPU-hours comes first. For memory, advice that frees the most memory comes first
after validity. Throughput and latency keep the order of areas, because the latency of a training run is the latency of
its steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from traceback import walk_tb
from typing import NamedTuple

from advisor.judging.baseline import baseline
from advisor.judging.calibration import Calibration, TrialResult
from advisor.metrics.base import Metrics, Missing, Need, if_measured
from advisor.metrics.gpu import device, traced_kernels
from advisor.metrics.host import core_use
from advisor.metrics.step import steady_step_count, step_time_uncertainty
from advisor.models.correction import corrected, nothing
from advisor.models.cost import Saving, saving
from advisor.models.state import Effect, Scenario, State, removed
from advisor.rules import all_rules
from advisor.rules.base import Advice, Area, Change, Evidence, Intervention, Rule, Severity

# Least expected gain of an action. At a step-to-step variation of 5 %, confirming a gain of 5 % takes 16 to 25 steps
# per arm; smaller gains are lost in the noise.
ACTION_EXPECTED = 0.05
# The low end of the gain must exceed this ...
ACTION_LOW = 0.02
# ... and this multiple of the noise, by which two runs of the same program differ.
NOISE_MARGIN = 2.0
# A change whose best case is within the difference of two runs of the same program is not worth reading.
NOTHING = ACTION_LOW
# Least expected gain of a suggestion: worth reading, but not worth insisting on.
SUGGEST_EXPECTED = 0.03

# Relative effort of a change, by the rule's difficulty: one argument, an hour's work, a day's work.
EFFORT = {1: 1.0, 2: 2.0, 3: 4.0}

# Relative difference up to which scores count as equal: predictions are not more accurate.
SCORE_TIE = 0.10

WINDOW_TOO_SHORT = "window-too-short"


class Outcome(Enum):
    """The possible outcomes of a rule."""

    FIRED = "fired"
    PASSED = "passed"
    NOT_MEASURED = "not_measured"
    CRASHED = "crashed"


class Estimate(NamedTuple):
    """The 10th, 50th and 90th percentile of the removed share of the step time (negative if it grows) or of seconds."""

    low: float
    expected: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Advice from a rule that fired, and its worth, which is known once it has its place in the plan."""

    rule: Rule
    severity: Severity = Severity.INFO
    evidence: Evidence
    advice: Advice
    alone: Estimate | None = None
    """Share of the step time that is removed if nothing else changes; None if no step time can be predicted."""
    in_plan: Estimate | None = None
    """The same after everything that precedes it in the plan."""
    cost: Estimate | None = None
    """Share of the training's cost that is removed; None if it equals the share of the step time."""
    saving: Saving | None = None
    """Expected saving in the plan, in GPU-hours and money; None without a GPU."""
    score: float = 0.0
    """Expected gain in the plan (in terms of the goal) x confidence / effort."""
    held_back: str = ""
    """Why this is only information although its gain deserves more, in sentences; empty otherwise."""
    modeled: Estimate | None = None
    """The prediction of the rule's model alone, before past trials make `alone` wider or narrower."""

    @property
    def change(self) -> Intervention:
        """Return the change that a trial makes; only for advice that can be tried."""
        assert self.advice.intervention is not None, "the caller has asked why_not"
        return self.advice.intervention


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleVerdict:
    """The outcome of one rule on this run, and the reason."""

    rule: Rule
    outcome: Outcome
    why: str
    remedy: str | None = None
    need: Need | None = None
    """What is missing for an answer; None if there is one, or if the rule is switched off."""
    finding: Finding | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgment:
    """The judgment of one run."""

    verdicts: tuple[RuleVerdict, ...]
    """One verdict per rule, in the rules' order."""
    findings: tuple[Finding, ...]
    """The findings in the order of the plan: faults, then by area and score; information last, by gain."""
    before: float | None
    """Measured seconds of the mean step, including its share of the time between steps."""
    after: Estimate | None
    """The same after all advice above information is followed."""


def judge(
    metrics: Metrics,
    rules: Sequence[Rule] | None = None,
    *,
    past: Calibration | None = None,
    tried: Mapping[str, TrialResult] | None = None,
) -> Judgment:
    """Run every rule on the metrics and plan the advice; an error in one rule does not stop the others.

    Args:
        metrics: The metrics of the run.
        rules: The rules to run; None for all that ship with profile-train.
        past: Trials of other runs. They set the width of intervals and the confidence in a model.
        tried: Trials on this run, by rule. Their measured gain replaces the prediction in the plan. Advice that a
            trial refuted or found harmful is no longer advised, and its rule supersedes no other.
    """
    trials = tried or {}
    verdicts = [_examine(rule, metrics) for rule in (all_rules() if rules is None else rules)]
    verdicts = _without_superseded(verdicts, trials)
    start = if_measured(baseline, metrics)
    plan = _Plan(
        metrics, start, [verdict.finding for verdict in verdicts if verdict.finding], past or Calibration(), trials
    )
    return Judgment(
        verdicts=tuple(plan.verdicts.get(verdict.rule.id, verdict) for verdict in verdicts),
        findings=tuple(plan.findings),
        before=start.time if start else None,
        after=plan.after,
    )


def _examine(rule: Rule, metrics: Metrics) -> RuleVerdict:
    if rule.off:
        why, remedy = f"Switched off by {rule.off}", "Set enabled = true there."
        return RuleVerdict(rule=rule, outcome=Outcome.NOT_MEASURED, why=why, remedy=remedy)
    view = rule.view(metrics)
    try:
        evidence = rule.when(view)
        if evidence is None:
            return _passed(rule, f"Condition not met: {_sentence(rule)}")
        advice = rule.then(view, evidence)
        if not (isinstance(evidence, Evidence) and isinstance(advice, Advice)):
            raise TypeError("`when` must return an Evidence or None, and `then` an Advice")
        if not all(isinstance(change, Change) for change in advice.changes):
            raise TypeError("the changes of an Advice must be a tuple of Change")
        return _fired(Finding(rule=rule, evidence=evidence, advice=advice))
    except Missing as missing:
        return RuleVerdict(
            rule=rule, outcome=Outcome.NOT_MEASURED, why=missing.what, remedy=missing.remedy, need=missing.need
        )
    except Exception as error:  # noqa: BLE001 - a broken rule must not stop the others
        return _crashed(rule, error)


def _fired(finding: Finding) -> RuleVerdict:
    return RuleVerdict(rule=finding.rule, outcome=Outcome.FIRED, why=_in_words(finding.evidence), finding=finding)


def _passed(rule: Rule, why: str) -> RuleVerdict:
    return RuleVerdict(rule=rule, outcome=Outcome.PASSED, why=why)


def _crashed(rule: Rule, error: Exception) -> RuleVerdict:
    remedy = "This is a mistake in the rule, not in your program: please report it with the run's folder."
    if rule.origin:
        lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == rule.origin]
        place = f"{rule.origin}, line {lines[-1]}" if lines else rule.origin
        remedy = f"This is one of your own rules; your program and profile-train are fine. Fix the rule: {place}."
    return RuleVerdict(rule=rule, outcome=Outcome.CRASHED, why=f"{type(error).__name__}: {error}", remedy=remedy)


def _sentence(rule: Rule) -> str:
    """Return the rule's If, on one line, as the end of a sentence."""
    text = " ".join((rule.when.__doc__ or rule.title).split()).rstrip(" .,…")
    condition = text.removeprefix("If ")
    return f"{condition}." if condition != text else f"{text[:1].lower()}{text[1:]}."


def _without_superseded(examined: list[RuleVerdict], tried: Mapping[str, TrialResult]) -> list[RuleVerdict]:
    """Return the verdicts, without the findings of rules that another fired rule supersedes.

    A rule does not silence others if it is superseded itself, or if a trial refuted it or found it harmful:
    then only the advice that it would precede remains.
    """
    refuted_ids = {rule for rule, trial in tried.items() if trial.verdict.is_against}
    fired_rules = [e.rule for e in examined if e.finding and e.rule.id not in refuted_ids]
    superseded_ids = {rule_id for rule in fired_rules for rule_id in rule.supersedes}
    silenced_by = {
        rule_id: rule for rule in fired_rules if rule.id not in superseded_ids for rule_id in rule.supersedes
    }

    def heard(e: RuleVerdict) -> RuleVerdict:
        superseding_rule = silenced_by.get(e.rule.id)
        if superseding_rule is None or e.finding is None:
            return e
        return _passed(e.rule, f"{superseding_rule.id} comes first: {superseding_rule.title}. Record again after that.")

    return [heard(e) for e in examined]


_States = dict[Scenario, State | None]


class _Plan:
    """The findings in order, and the state of the step as they are followed."""

    def __init__(
        self,
        metrics: Metrics,
        start: State | None,
        fired: list[Finding],
        past: Calibration,
        tried: Mapping[str, TrialResult],
    ) -> None:
        self.findings: list[Finding] = []
        self.verdicts: dict[str, RuleVerdict] = {}
        """Verdicts of the rules that fired. A gain model may have failed, or predict no gain."""
        self._metrics = metrics
        self._past = past
        self._tried = tried
        self._goal = metrics.goals.goal
        self._start = start
        self._states: _States = dict.fromkeys(Scenario, start)
        self._noise = metrics.get(step_time_uncertainty)
        warnings = [finding for finding in fired if finding.rule.id == WINDOW_TOO_SHORT]
        self._uncertain = bool(warnings)
        self._few_steps = any(
            fact.metric in (steady_step_count, traced_kernels)
            for finding in warnings
            for fact in finding.evidence.facts
        )
        self._distorting = [
            finding.rule for finding in fired if finding.rule.area is Area.VALIDITY and finding.advice.fault
        ]
        cores = metrics.get(core_use)
        self._crowded = cores is not None and cores.is_crowded
        self._walk(fired)

    @property
    def after(self) -> Estimate | None:
        times = sorted(state.time for state in self._states.values() if state is not None)
        expected = self._states[Scenario.EXPECTED]
        return Estimate(times[0], expected.time, times[-1]) if expected else None

    def _walk(self, fired: list[Finding]) -> None:
        """Order the findings: faults first, then area by area, each time the best of the remaining ones.

        Faults come first because a run that does not fit or is broken has no speed.
        """
        information: list[Finding] = []
        while remaining := [finding for finding in fired if finding.rule.id not in self.verdicts]:
            first_place = min(map(self._place, remaining))
            candidates = list(
                filter(None, [self._weigh(finding) for finding in remaining if self._place(finding) == first_place])
            )
            if not candidates:
                continue
            best = _best(candidates)
            if _gains_nothing(best) and best.rule.id not in self._tried:
                why = "The change would not make a step of this run shorter."
                self.verdicts[best.rule.id] = _passed(best.rule, why)
                continue
            self.verdicts[best.rule.id] = _fired(best)
            if best.severity is Severity.INFO:
                information.append(best)
                continue
            self.findings.append(best)
            effect = self._effect(best.rule, best.advice)
            if best.in_plan and effect:
                self._states = {scenario: state and effect(state, scenario) for scenario, state in self._states.items()}
        self.findings += sorted(information, key=self._rank)

    def _rank(self, information: Finding) -> tuple[bool, bool, float]:
        """Return the sort key of information: a recording of too few steps first, then by gain.

        On a machine that other programs use, timings are unreliable, so the low end of the prediction counts.
        """
        gain = information.cost if information.cost and self._goal == "cost" else information.in_plan
        trial = self._tried.get(information.rule.id)
        has_few_steps = self._few_steps and information.rule.id == WINDOW_TOO_SHORT
        if gain is None or (trial and trial.verdict.is_against):
            return not has_few_steps, True, 0.0
        return not has_few_steps, False, -(gain.low if self._crowded else gain.expected)

    def _place(self, finding: Finding) -> tuple[bool, bool, bool, int]:
        """Return the sort key of a finding: the lowest comes first, and the score decides among equals."""
        area, frees_memory = finding.rule.area, self._freed(finding.advice) > 0
        by_score = frees_memory or self._goal == "cost"
        return (not finding.advice.fault, area is not Area.VALIDITY, not frees_memory, 0 if by_score else area.value)

    def _weigh(self, finding: Finding) -> Finding | None:
        """Return the finding with its worth as the next in the plan; None, and a verdict, if its gain model fails."""
        rule, advice = finding.rule, finding.advice
        distorted = bool(self._distorting) and rule.area is not Area.VALIDITY
        start_states: _States = dict.fromkeys(Scenario, self._start)
        try:
            effect = None if distorted else self._effect(rule, advice)
            modeled = None if distorted else self._gain(advice.effect, start_states)
            alone, in_plan = self._gain(effect, start_states), self._gain(effect, self._states)
            cost = Estimate(*advice.cost) if advice.cost and not distorted else None
            worth = cost if cost and self._goal == "cost" else in_plan
        except Exception as error:  # noqa: BLE001 - as in _examine
            self.verdicts[rule.id] = _crashed(rule, error)
            return None
        confidence = self._past.confidence(rule.id, (advice.confidence or rule.confidence).value)
        severity, held_back = self._severity(rule, advice, worth)
        gpu = self._metrics.get(device)
        return replace(
            finding,
            severity=severity,
            held_back=held_back,
            alone=alone,
            in_plan=in_plan,
            cost=cost,
            saving=saving(in_plan.expected, self._metrics.goals.gpu_price) if gpu and in_plan else None,
            score=(self._freed(advice) or (worth.expected if worth else 0.0)) * confidence / EFFORT[rule.difficulty],
            modeled=modeled,
        )

    def _freed(self, advice: Advice) -> float:
        """Return the share of the device's memory that the advice frees; 0.0 unless memory is the goal."""
        gpu = self._metrics.get(device)
        if self._goal != "memory" or gpu is None or not gpu.memory_total:
            return 0.0
        return max(0.0, -(advice.memory or 0) / gpu.memory_total)

    def _effect(self, rule: Rule, advice: Advice) -> Effect | None:
        """Return the advice's effect, corrected by past trials."""
        if self._start is None:
            return advice.effect
        trial = self._tried.get(rule.id)
        if trial and trial.removed and (trial.verdict.is_kept or trial.verdict.is_against):
            return corrected(advice.effect or nothing, self._start, trial.removed)
        modeled = self._gain(advice.effect, dict.fromkeys(Scenario, self._start))
        if advice.effect is None or modeled is None:
            return advice.effect
        prediction = self._past.prediction(rule.id, modeled)
        return advice.effect if prediction == modeled else corrected(advice.effect, self._start, prediction)

    def _gain(self, effect: Effect | None, states: _States) -> Estimate | None:
        if effect is None:
            return None
        shares = {
            scenario: removed(state, effect(state, scenario)) for scenario, state in states.items() if state is not None
        }
        if not shares:
            return None
        return Estimate(min(shares.values()), shares[Scenario.EXPECTED], max(shares.values()))

    def _severity(self, rule: Rule, advice: Advice, gain: Estimate | None) -> tuple[Severity, str]:
        """Return the severity, and why it is less than the gain deserves; empty if it is not."""
        if self._distorting and gain is None and advice.effect and not advice.fault:
            fault_ids = ", ".join(fault.id for fault in self._distorting)
            reason = f"the measured steps are distorted. First follow {fault_ids}, then record again."
            return Severity.INFO, f"Its gain cannot be predicted, because {reason}"
        severity = min(self._deserved(rule, advice, gain), rule.cap, key=list(Severity).index)
        if severity is Severity.INFO or not self._is_too_uncertain(rule, advice, gain):
            return severity, ""
        if self._few_steps or self._noise is None or gain is None:
            return Severity.INFO, "There are too few steady steps to be sure. Record more steps."
        noise = max(ACTION_LOW, NOISE_MARGIN * self._noise)
        return Severity.INFO, (
            f"The low end of its gain, {gain.low:.1%}, is within this run's noise of \u00b1{noise:.1%}."
        )

    def _is_too_uncertain(self, rule: Rule, advice: Advice, gain: Estimate | None) -> bool:
        """Return whether the timings are too uncertain to insist on the advice.

        A fault or a setting is always certain enough. After too few steps, nothing else is. If the only problem is
        that step times scatter, or that other programs used the cores, a gain that is clear of the noise is certain
        enough.
        """
        if advice.fault or rule.certain:
            return False
        is_clear = gain is not None and self._is_clear(gain)
        return (self._uncertain and self._few_steps) or ((self._uncertain or self._crowded) and not is_clear)

    def _deserved(self, rule: Rule, advice: Advice, gain: Estimate | None) -> Severity:
        if advice.fault:
            return Severity.ACTION
        if gain is None or ((trial := self._tried.get(rule.id)) and trial.verdict.is_against):
            return Severity.INFO
        if self._is_clear(gain) and gain.expected >= ACTION_EXPECTED:
            return Severity.ACTION
        if gain.expected >= SUGGEST_EXPECTED and gain.low >= 0:
            return Severity.SUGGEST
        return Severity.INFO

    def _is_clear(self, gain: Estimate) -> bool:
        """Return whether the gain is clear of chance; False if the noise was not measured."""
        return self._noise is not None and gain.low > max(ACTION_LOW, NOISE_MARGIN * self._noise)


def _gains_nothing(finding: Finding) -> bool:
    """Return whether a change made only for speed gains too little to notice in every scenario."""
    advice, area = finding.advice, finding.rule.area
    for_speed = area in (Area.STALLS, Area.PRECISION, Area.KERNELS) or (area is Area.DISTRIBUTED and not advice.memory)
    if not for_speed or advice.fault or finding.cost:
        return False
    return all(gain is not None and gain.high <= NOTHING for gain in (finding.alone, finding.in_plan))


def _best(findings: list[Finding]) -> Finding:
    """Return the finding with the highest score; among near-equal scores the easiest, then by id."""
    top_score = max(finding.score for finding in findings)
    ties = [finding for finding in findings if finding.score >= top_score - SCORE_TIE * abs(top_score)]
    return min(ties, key=lambda finding: (finding.rule.difficulty, finding.rule.id))


def _in_words(evidence: Evidence) -> str:
    facts = [
        f"{fact.metric.name} = {fact.value:.4g}"
        + (f" ({fact.relation} {fact.limit:.4g})" if fact.limit is not None else "")
        for fact in evidence.facts
    ]
    return "; ".join([*facts, evidence.note] if evidence.note else facts)
