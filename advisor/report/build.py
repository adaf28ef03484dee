"""Build the Report on a run from what was recorded or traced, measured, judged and tried."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone

from advisor.judging.calibration import Calibration
from advisor.judging.judge import Finding, Judgment
from advisor.metrics import between, communication, cost, host, memory, step
from advisor.metrics.base import Metrics, Missing, Need
from advisor.metrics.input import loader
from advisor.metrics.peaks import peak_rates
from advisor.metrics.settings import AMD, UNTIMED, untimed
from advisor.report.anatomy import WhatIf, what_if
from advisor.report.code import Code, code, evidence
from advisor.report.conclusion import in_order
from advisor.report.next_step import next_step
from advisor.report.one_step import one_step
from advisor.report.operations import operations
from advisor.report.operator_table import operator_table
from advisor.report.quantities import quantities
from advisor.report.ranks import FEW, Ranks, ranks
from advisor.report.report import (
    CONTRACT_PHASES,
    NOTHING,
    Note,
    Overhead,
    Phase,
    Recommendation,
    Report,
    RunInfo,
    StepTimes,
)
from advisor.report.timeline import charts
from advisor.runs.environment import environment
from advisor.runs.profile import Profile
from advisor.runs.traces import TraceSummary, traced
from advisor.verify import kept
from advisor.verify.kept import Verified
from profiler.schema import BETWEEN, RegionFact
from profiler.version import __version__

MOST_NOTES = 100
"""Most notes in a report: a thousand ranks may each report the same problem in different words."""


def build_report(
    profile: Profile,
    judgment: Judgment,
    metrics: Metrics,
    verified: Mapping[str, Verified] | None = None,
    past: Calibration | None = None,
    imported: bool = False,
) -> Report:
    """Return the report on a profile.

    `verified` contains the trials on this run, by rule; `past`, the trials on all runs. `imported`: the profile is of
    traces that torch.profiler wrote without profile-train.
    """
    all_trials = (verified or {}).values()
    trials = kept.tried(all_trials)
    memory_model, memory_missing = _what_if(metrics)
    all_ranks = ranks(metrics, profile)
    traces = tuple(trace for rank in profile.ranks if (trace := traced(rank)) is not None)
    steps = _steps(profile, metrics)
    phases = _phases(metrics)
    stacks = code(metrics, profile)
    report = Report(
        version=profile.runs[0].version if profile.runs else __version__,
        run=_run_of_traces(traces) if imported else _run(profile),
        steps=steps,
        phases=phases,
        between=_between(metrics),
        regions=_regions(profile),
        advice=tuple(
            _recommendation(
                finding, trials.get(finding.rule.id), (past or Calibration()).story(finding.rule.id), stacks
            )
            for finding in judgment.findings
        ),
        before=judgment.before if steps else None,
        after=judgment.after if steps else None,
        checked=judgment.verdicts,
        quantities=tuple(quantities(metrics)),
        memory=_memory(metrics),
        memory_total=max((gpu.memory_total for gpu in profile.gpus), default=None),
        what_if=memory_model,
        memory_missing="" if imported else memory_missing,
        out_of_memory=bool(metrics.get(memory.ran_out_of_memory)),
        operations=operations(profile),
        operators=operator_table(profile, metrics.get(peak_rates)),
        one_step=one_step(profile),
        code=stacks,
        ranks=all_ranks,
        charts=() if imported and len(profile.ranks[0].steps) < 2 else charts(profile, _drawn(profile, all_ranks)),
        problems=_problems(profile),
        environment=environment(profile),
        overhead=_overhead(profile),
        goals=metrics.goals,
        gpu_hours=metrics.get(cost.gpu_hours),
        cores=None if imported else metrics.get(host.core_use),
        applied=tuple(trial for trial in all_trials if trial.applied),
        traces=traces,
        imported=imported,
    )
    report = replace(report, advice=in_order(report))
    return replace(report, next=next_step(report, profile.runs[0].started_at if profile.runs else None))


def _run_of_traces(traces: Sequence[TraceSummary]) -> RunInfo:
    """Return the run that imported traces are a part of."""
    return RunInfo(
        command=tuple(trace.fact.file for trace in traces),
        ended="attached",
        duration=max(trace.fact.seconds for trace in traces),
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
        started=_iso(run.started_at),
        duration=run.duration,
        ranks=len({rank.process.rank for rank in profile.ranks if rank.process.role == "rank"}),
        nodes=max(len({run.host for run in profile.runs}), len({rank.process.node_rank for rank in profile.ranks})),
    )


def _iso(unix: float) -> str:
    """Return a Unix time as ISO 8601, UTC; "" if it is out of range, in a damaged recording."""
    try:
        return datetime.fromtimestamp(unix, timezone.utc).isoformat(timespec="seconds")
    except (OverflowError, OSError, ValueError):
        return ""


def _steps(profile: Profile, metrics: Metrics) -> StepTimes | None:
    """Return the step times of the primary rank; None if nothing trained."""
    steps = profile.ranks[0].steps if profile.ranks else ()
    if not steps:
        return None
    return StepTimes(
        count=sum(row.count for row in steps),
        steady=metrics.get(step.steady_step_count),
        micro_steps=metrics.get(step.micro_steps_per_step),
        batches=sum(row.batches * row.count for row in steps),
        mean=metrics.get(step.step_time_mean),
        p50=metrics.get(step.step_time_p50),
        p90=metrics.get(step.step_time_p90),
        p99=metrics.get(step.step_time_p99),
        interval=metrics.get(step.step_time_ci),
    )


def _phases(metrics: Metrics) -> tuple[Phase, ...]:
    """Return the seconds and shares of the mean steady step."""
    mean = metrics.get(step.step_time_mean)
    seconds = metrics.get(step.phase_seconds)
    seconds = {} if seconds is None else {**seconds}
    seconds |= _communication(metrics, seconds)
    steady_steps = metrics.get(step.steady_steps) or ()
    for name in set(BETWEEN) & set(CONTRACT_PHASES):
        # Steady steps contain no such work, by definition; this separates "none" from "not measured".
        if any(getattr(row, name) is not None for row in steady_steps):
            seconds[name] = 0.0
    return tuple(
        Phase(name=name, seconds=seconds.get(name), share=seconds[name] / mean if mean and name in seconds else None)
        for name in CONTRACT_PHASES
    )


def _communication(metrics: Metrics, phases: Mapping[str, float]) -> dict[str, float]:
    """Return exposed communication, and the rest of the backward pass that contains it.

    Empty unless steps do not separate the two and DistributedDataParallel has timed itself (on a CPU).
    """
    exposed = metrics.get(communication.exposed_comm_seconds)
    if "communication" in phases or "backward" not in phases or not exposed:
        return {}
    if metrics.get(step.exposed_comm_fraction) is not None:  # it comes from profiler windows only
        return {}
    exposed = min(exposed, phases["backward"])
    return {"communication": exposed, "backward": phases["backward"] - exposed}


def _between(metrics: Metrics) -> tuple[Phase, ...]:
    """Return the work between steps, as shares of the run time."""
    shares = {
        "evaluation": metrics.get(between.evaluation_share),
        "checkpoint_save": metrics.get(between.checkpoint_save_share),
        "epoch_start": metrics.get(between.epoch_start_share),
    }
    others = {
        "epoch_settling": metrics.get(between.epoch_settling_share),
        "epoch_gap": metrics.get(between.epoch_gap_share),
    }
    shares |= {name: value for name, value in others.items() if value is not None and value >= NOTHING}
    loader_fact = metrics.get(loader)
    forked = loader_fact is not None and loader_fact.num_workers > 0 and loader_fact.forks
    return tuple(Phase(name=name, share=value, forked=forked) for name, value in shares.items())


def _regions(profile: Profile) -> tuple[RegionFact, ...]:
    regions = profile.ranks[0].regions if profile.ranks else ()
    return tuple(sorted((region for region in regions if region.count), key=lambda region: -region.seconds))


def _recommendation(finding: Finding, verified: Verified | None, past: str, stacks: Code | None) -> Recommendation:
    place, line = evidence(finding.rule.id, stacks) or (None, "")
    note = finding.evidence.note
    if line and note and note[-1] not in ".!?":
        note += "."
    change_place = next(
        ((change.file, change.line) for change in finding.advice.changes if change.file and change.line), None
    )
    return Recommendation(
        finding=finding,
        note=" ".join(filter(None, (note, line))),
        place=(place.file, place.line)
        if place and (place.kind or not place.library.startswith("torch"))
        else change_place,
        verified=verified,
        past=past,
    )


def _memory(metrics: Metrics) -> dict[str, float]:
    """Return the parts of the peak that were measured."""
    parts = {
        "params": memory.mem_params,
        "grads": memory.mem_grads,
        "optim": memory.mem_optim,
        "activations": memory.mem_activations,
        "nontorch": memory.mem_nontorch,
    }
    return {name: value for name, metric in parts.items() if (value := metrics.get(metric)) is not None}


def _what_if(metrics: Metrics) -> tuple[WhatIf | None, str]:
    """Return the what-if table and, unless it only lacks a GPU, why it is missing."""
    try:
        return what_if(metrics), ""
    except Missing as missing:
        trained = metrics.get(step.step_time_mean) is not None
        return None, f"{missing.what}. {missing.remedy}" if trained and missing.need is not Need.GPU else ""


def _drawn(profile: Profile, all_ranks: Ranks) -> dict[int, str]:
    """Return the ranks to draw over time, with a label for each: the first, the typical ones, those that stand out."""
    if not all_ranks.many:
        return {}
    labels = {profile.ranks[0].process.rank: ""}
    for role, number in all_ranks.typical:
        labels[number] = f" ({role})"
    for outlier in all_ranks.named:
        labels.setdefault(outlier.rank, "")
    return dict(list(labels.items())[:FEW])


def _problems(profile: Profile) -> tuple[Note, ...]:
    """Return the notes of the recording, each once with its count."""
    counts = Counter((problem.source, problem.message, problem.code) for problem in profile.problems)
    notes = [
        Note(source=source, message=message, code=code, count=count)
        for (source, message, code), count in counts.items()
    ]
    if any(rank.process.hip and rank.devices for rank in profile.ranks):  # the recorder queries NVML, not torch
        notes = [note if note.matters else replace(note, message=f"{AMD}.", code="not-nvidia") for note in notes]
    kinds = {kind: None for rank in profile.ranks if (kind := untimed(rank))}
    notes += [
        Note(source="device", message=f"{UNTIMED.format(kind)}: phases, and advice based on them, are left out.")
        for kind in kinds
    ]
    overhead = _overhead(profile)
    if overhead.events_lost:
        total = overhead.events + overhead.events_lost
        lost_message = f"{overhead.events_lost:,} of {total:,} events were lost: some steps are wrong or missing."
        notes.insert(0, Note(source="ring", message=lost_message))  # the most important problem
    notes.sort(key=lambda note: note.source != "end")  # how the program ended comes first
    if len(notes) > MOST_NOTES:
        rest_message = f"{len(notes) - MOST_NOTES:,} more notes are left out here; the recordings contain them."
        notes[MOST_NOTES:] = [Note(source="report", message=rest_message)]
    return tuple(notes)


def _overhead(profile: Profile) -> Overhead:
    """Return the time in our hooks and windows, also as a share of the ranks' run time."""
    processes = [rank.process for rank in profile.ranks]
    all_processes = [*processes, *(worker for rank in profile.ranks for worker in rank.workers)]
    end = max((run.duration or 0.0 for run in profile.runs), default=0.0)
    run_time = sum(
        max(0.0, (end if process.ended is None else process.ended) - process.started) for process in processes
    )
    hooks, windows = sum(p.hooks for p in processes), sum(p.windows for p in processes)
    cpu_seconds = [run.recorder_cpu for run in profile.runs if run.recorder_cpu is not None]
    return Overhead(
        fraction=(hooks + windows) / run_time if run_time > 0 else None,
        budget=profile.runs[0].budget if profile.runs else 0.01,
        hooks=hooks,
        windows=windows,
        recorder_cpu=sum(cpu_seconds) if cpu_seconds else None,
        events=sum(process.events for process in all_processes),
        events_lost=sum(process.events_lost for process in all_processes),
    )
