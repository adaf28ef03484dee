"""What is shown about a run. Renderers use only a `Report`; result.json is its serialization."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from advisor.judging.judge import Estimate, Finding, RuleVerdict
from advisor.metrics.base import Goals
from advisor.metrics.host import CoreUse
from advisor.report.anatomy import WhatIf
from advisor.report.code import Code
from advisor.report.one_step import OneStep
from advisor.report.operations import Operations
from advisor.report.operator_table import OperatorTable
from advisor.report.quantities import Quantity
from advisor.report.ranks import Ranks
from advisor.report.timeline import Chart
from advisor.runs.environment import Environment
from advisor.runs.traces import TraceSummary
from advisor.units import seconds
from advisor.verify.kept import Verified
from profiler.schema import NO_DRIVER, PHASES, Outcome, RegionFact

if TYPE_CHECKING:
    from advisor.fleet.history import PastRun  # most reports are made without a fleet

NOTHING = 5e-4
"""Share of the step time below which a gain reads as zero."""

LOADER_HOOK = "dataloader"
"""Source of problems with observing DataLoaders."""

LABELS = {
    "data_wait": ("Waiting for data", "The loop asked for a batch and none was ready."),
    "loader_overhead": ("Fetching a ready batch", "A batch was ready; this is the time to hand it to the loop."),
    "h2d": ("Copying to the GPU", "Copies from host memory to the GPU that no kernel hides."),
    "forward": ("Forward", "The model's forward pass."),
    "backward": ("Backward", "Computing the gradients."),
    "optimizer": ("Optimizer", "The optimizer's update of the parameters."),
    "communication": ("Communication", "Collectives between ranks that no computation hides."),
    "sync": ("Synchronizing", "The host waited for the GPU, and the GPU had no queued work."),
    "gc": ("Garbage collection", "Python's garbage collector ran."),
    "other": ("Everything else", "Everything else: the loss, logging, metrics, callbacks."),
    "evaluation": ("Evaluation", "Evaluation between the steps."),
    "checkpoint_save": ("Saving checkpoints", "Saving with torch.save or safetensors, between the steps."),
    "epoch_start": ("Starting epochs", "Creating the loader's iterator, its workers and the first batch."),
    "epoch_settling": ("Slow first steps of epochs", "The extra time of the first step after an epoch start."),
    "epoch_gap": ("Between epochs", "The program's own work, or a pause, between two epochs."),
}

SETTLING_FORKED = "The first step takes longer while forked workers share its memory."

CONTRACT_PHASES = (*PHASES[:-2], "checkpoint_save", "evaluation", *PHASES[-2:])
"""Parts of the mean step in result.json."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """The program that was run, and its end."""

    command: tuple[str, ...] = ()
    cwd: str = ""
    exit_status: int | None = None
    signal: int | None = None
    ended: Outcome = "running"
    started: str = ""
    """ISO 8601, UTC; empty if it is unknown."""
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
    """95 % interval of the mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of the mean steady step, or work between steps as a share of run time. None: not measured."""

    name: str
    seconds: float | None = None
    share: float | None = None
    forked: bool = False
    """Whether the loader's workers were forked."""

    @property
    def label(self) -> str:
        """Return the name for readers."""
        return LABELS[self.name][0]

    @property
    def meaning(self) -> str:
        """Return the meaning in a sentence."""
        return SETTLING_FORKED if self.name == "epoch_settling" and self.forked else LABELS[self.name][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """One piece of advice as it was judged, in the order of the plan, and what else is known about it."""

    finding: Finding
    note: str = ""
    """Evidence other than numbers, and the line that stacks show."""
    place: tuple[str, int] | None = None
    """File and line of the advice: the one that stacks show, else that of the first change."""
    verified: Verified | None = None
    """The result of its trial."""
    past: str = ""
    """Results of the rule's advice so far, on all runs, in sentences; empty if it was never tried."""

    @property
    def rule(self) -> str:
        """Return the rule's id."""
        return self.finding.rule.id

    @property
    def severity(self) -> str:
        """Return how much it matters: "action", "suggest" or "info"."""
        return self.finding.severity.value

    @property
    def title(self) -> str:
        """Return the change in one line."""
        return self.finding.advice.title or self.finding.rule.title

    @property
    def tried_in_vain(self) -> bool:
        """Return whether the verdict of a trial is against it."""
        return self.verified is not None and self.verified.verdict.is_against


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something the recording could not do, and how often."""

    source: str
    message: str
    code: str = ""
    """As in `profiler.schema.Problem`."""
    count: int = 1

    @property
    def matters(self) -> bool:
        """Return False if it only says that the machine has no GPU."""
        return self.code != NO_DRIVER


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """The cost of the recording to the program, self-measured; seconds are sums over the ranks."""

    fraction: float | None = None
    budget: float = 0.01
    hooks: float = 0.0
    windows: float = 0.0
    recorder_cpu: float | None = None
    events: int = 0
    events_lost: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """The one thing to do after a report, for a program or a coding agent."""

    do: Literal["verify", "apply", "change", "record", "look", "stop"] = "stop"
    rule: str | None = None
    what: str = ""
    """What to do, in a sentence."""
    command: tuple[str, ...] = ()
    """The command that tries the change; RUN stands for the run's folder."""
    patch: str | None = None
    """The change as a unified diff; None if it cannot be one."""
    folder: str | None = None
    """Folder in which to `git apply` the patch."""
    no_patch: str = ""
    """Why there is no patch, in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that the report shows, before it is rendered."""

    version: str
    run: RunInfo
    steps: StepTimes | None = None
    phases: tuple[Phase, ...] = ()
    """All of CONTRACT_PHASES, measured or not, in their order."""
    between: tuple[Phase, ...] = ()
    """Shares of run time."""
    regions: tuple[RegionFact, ...] = ()
    """Regions that the program named, of the first rank; longest first."""
    advice: tuple[Recommendation, ...] = ()
    before: float | None = None
    """Seconds of the mean step, with its share of the time between steps."""
    after: Estimate | None = None
    """The same after the plan, without advice for information."""
    checked: tuple[RuleVerdict, ...] = ()
    quantities: tuple[Quantity, ...] = ()
    memory: Mapping[str, float] = field(default_factory=dict)
    """Bytes of the device's memory at the peak of a step, by part, if measured."""
    memory_total: float | None = None
    what_if: WhatIf | None = None
    """The model of that memory at other settings; None if its parts were not measured."""
    memory_missing: str = ""
    """Why its parts are not known and how to get them; empty if they are known, or if nothing trains on a GPU."""
    out_of_memory: bool = False
    """Whether a failed allocation ended the program."""
    operations: Operations | None = None
    operators: OperatorTable | None = None
    """Operators that launch the GPU's work, of the first rank."""
    one_step: OneStep | None = None
    """A typical step and the slowest one, to look into."""
    code: Code | None = None
    """Where in the program's code the time goes; None if no stacks were sampled."""
    ranks: Ranks = field(default_factory=Ranks)
    charts: tuple[Chart, ...] = ()
    problems: tuple[Note, ...] = ()
    environment: Environment = field(default_factory=dict)
    overhead: Overhead = field(default_factory=Overhead)
    goals: Goals = field(default_factory=Goals)
    gpu_hours: float | None = None
    cores: CoreUse | None = None
    """Who used the machine's cores; None if not measured, and for traces."""
    applied: tuple[Verified, ...] = ()
    """Changes that were applied in this run, in the order in which they were tried."""
    traces: tuple[TraceSummary, ...] = ()
    """One for each rank that has any: an imported trace, or a profiler window with GPU work."""
    imported: bool = False
    """Whether the report is about traces that torch.profiler wrote without profile-train."""
    next: NextStep = NextStep()
    history: tuple[PastRun, ...] = ()
    """Earlier runs of the same script, the newest first; empty without a fleet."""

    @property
    def largest_phase(self) -> Phase | None:
        """Return the phase with the largest share of a step; None without phases."""
        return max(self.phases, key=lambda phase: phase.share or 0.0, default=None)

    @property
    def loader_watched(self) -> bool | None:
        """Return whether waiting for data was measured; None without a DataLoader, False if one was not watched."""
        if any(note.source == LOADER_HOOK for note in self.problems):
            return False
        return any(phase.name == "data_wait" and phase.share is not None for phase in self.phases) or None

    @property
    def extended(self) -> bool:
        """Return whether `before` and `after` include a visible part of the time between steps."""
        mean = self.steps.mean if self.steps else None
        return bool(mean and self.before and seconds(self.before) != seconds(mean))

    def recommended(self, rule: str | None) -> Recommendation | None:
        """Return the advice of a rule; None if it gave none."""
        return next((item for item in self.advice if item.rule == rule), None)

    def checks(self, outcome: str) -> tuple[RuleVerdict, ...]:
        """Return the rules with this outcome."""
        return tuple(check for check in self.checked if check.outcome.value == outcome)
