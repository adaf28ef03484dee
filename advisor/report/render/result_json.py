"""Render result.json, which scripts and CI checks read."""

import json
from dataclasses import asdict
from typing import Any

from advisor.compare.comparison import Comparison
from advisor.models.effects import Triple
from advisor.report.code import HotPlace
from advisor.report.conclusion import conclude
from advisor.report.one_step import OneStep
from advisor.report.operator_table import OperatorTable
from advisor.report.pages import condition
from advisor.report.ranks import MOST_ROWS, Ranks
from advisor.report.render.picked import picked
from advisor.report.report import CONTRACT_PHASES, Recommendation, Report, StepTimes
from advisor.report.wording import assumed
from advisor.rules.base import Change
from advisor.runs.traces import TraceSummary
from advisor.verify.kept import Verified
from profiler.schema import PHASES

SCHEMA = "profile-train/result@1"


def render(report: Report, compared: Comparison | None = None) -> str:
    """Return the result as JSON; its schema is docs/result.schema.json.

    It is ASCII: control characters, and characters that an encoder may reject, are escaped.
    """
    document = result(report) | ({"against": compared.result()} if compared else {})
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def result(report: Report) -> dict[str, Any]:
    """Return result.json as a dictionary, as docs/result.schema.json describes it."""
    shares = {phase.name: phase.share for phase in report.phases}
    steps, code, cores = report.steps or StepTimes(count=0), report.code, report.cores
    return {
        "schema": SCHEMA,
        "run": picked(report.run, "command exit_status ended started duration_s=duration ranks nodes"),
        "conclusion": asdict(conclude(report)),
        "next": {**asdict(report.next), "command": list(report.next.command)},
        "machine": {
            "cores": cores and cores.cores,
            "others_cpu": cores and cores.others,
            "representative": cores and not cores.is_crowded,
        },
        "steps": {
            **picked(steps, "count micro_steps_per_step=micro_steps batches"),
            "time_s": picked(steps, "mean p50 p90 p99 mean_ci95=interval"),
        },
        "phases": {name: shares.get(name) for name in CONTRACT_PHASES},
        "ranks": _ranks(report.ranks),
        "regions": [picked(entry, "name passes=count time_s=seconds") for entry in report.regions],
        "code": code
        and {
            "samples": code.samples,
            "step": list(map(_place, code.places)),
            "workers": list(map(_place, code.workers)),
            "between": list(map(_place, code.between)),
        },
        "metrics": {
            q.name: picked(q, "missing remedy" if q.value is None else "value unit") for q in report.quantities
        },
        "advice": [_advice(item) for item in report.advice],
        "verdicts": [
            {
                **picked(entry, "rule=rule.id outcome=outcome.value why"),
                "remedy": entry.remedy or "",
                "needs": entry.need and entry.need.value,
                "limits": entry.rule.in_force,
            }
            for entry in report.checked
        ],
        "goals": {
            "declared": {name: value for name, value in asdict(report.goals).items() if value not in (None, False)},
            "assumed": assumed(report),
        },
        "overhead": picked(
            report.overhead, "fraction hooks_s=hooks windows_s=windows recorder_cpu_s=recorder_cpu events_lost"
        ),
        "environment": {
            **{group: dict(facts) for group, facts in report.environment.items()},
            "problems": [picked(note, "source message code") for note in report.problems if note.matters],
        },
        **({"traces": [_traced(trace) for trace in report.traces]} if report.traces else {}),
        **({"operators": _operators(report.operators)} if report.operators else {}),
        **({"one_step": _one_step(report.one_step)} if report.one_step else {}),
    }


def _ranks(ranks: Ranks) -> dict[str, Any]:
    return {
        "count": ranks.count,
        "unseen": {"count": len(ranks.unseen), "first": list(ranks.unseen[:MOST_ROWS])},
        "step_time_s": ranks.step_times and ranks.step_times._asdict(),
        "memory_peak_bytes": ranks.memory_peaks and ranks.memory_peaks._asdict(),
        "each": [
            {
                **picked(row, "rank node host steps step_time_s=step_time"),
                "phases_s": {name: _nanoseconds(row.phases.get(name)) for name in PHASES},
                **picked(row, "memory_peak_bytes=memory_peak events_lost remark"),
            }
            for row in ranks.rows
        ],
    }


def _place(place: HotPlace) -> dict[str, Any]:
    return {
        **picked(place, "phase function file line share"),
        "share_ci95": [place.low, place.high],
        "samples": place.samples,
        "library": place.library or None,
        "kind": place.kind or None,
    }


def _gain(gain: Triple | None) -> dict[str, float] | None:
    return dict(zip(("low", "expected", "high"), gain, strict=True)) if gain else None


def _change(change: Change) -> dict[str, Any]:
    return {
        **picked(change, "language file line code"),
        "differences": [picked(difference, "name before after") for difference in change.differences],
    }


def _advice(item: Recommendation) -> dict[str, Any]:
    finding, advice = item.finding, item.finding.advice
    saving = finding.saving
    return {
        **picked(item, "rule severity title"),
        "if": condition(finding.rule),
        "then": advice.then,
        "evidence": [picked(fact, "metric=metric.name value limit") for fact in finding.evidence.facts],
        "change": [_change(change) for change in advice.changes],
        "gain": {
            "step_time_removed": _gain(finding.alone),
            "in_plan": _gain(finding.in_plan),
            "cost_removed": _gain(finding.cost),
            "basis": advice.basis,
            "gpu_hours": saving and saving.gpu_hours,
            "money": saving and saving.money,
        },
        "memory_bytes": advice.memory,
        "risk": advice.risk,
        "verified": item.verified and verified(item.verified),
        "held_back": finding.held_back,
        "past": item.past,
    }


def verified(tried: Verified) -> dict[str, Any]:
    """Return a trial, as predicted and as measured."""
    return {
        "verdict": tried.verdict.value,
        "predicted": _gain(tried.predicted),
        "step_time_removed": _gain(tried.removed),
        "step_time_s": {"before": tried.seconds[0], "after": tried.seconds[1]} if tried.seconds else None,
        **picked(tried, "memory_bytes=memory losses_agree steps processes why not_tried=leaves"),
    }


def _operators(table: OperatorTable) -> dict[str, Any]:
    rows = [*table.rows, table.rest] if table.rest else table.rows
    return {
        **picked(table, "steps gpu time_s=seconds"),
        "rows": [
            picked(
                row,
                "name path phase kind inputs dtype arithmetic calls time_s=seconds share kernels kernel host_s=host "
                "launch_gap_s=gap flop bytes flop_per_s=roof.rate bytes_per_s=roof.bandwidth roofline=roof.share "
                "bound=roof.bound to_be_had_s=roof.gain",
            )
            for row in rows
        ],
    }


def _one_step(found: OneStep) -> list[dict[str, Any]]:
    return [
        {
            **picked(step, "which number time_s=seconds parts_s=parts"),
            "longest": [
                {
                    "part": stretch.part,
                    "start_s": stretch.start,
                    "time_s": stretch.seconds,
                    "host": stretch.host or None,
                }
                for stretch in step.stretches
            ],
        }
        for step in found.steps
    ]


def _traced(one: TraceSummary) -> dict[str, Any]:
    return {
        **picked(one, "rank file=fact.file events=fact.events steps=fact.steps duration_s=fact.seconds"),
        "time": {part.name: part.share for part in one.parts} or None,
        "communication_overlap": one.fact.overlap,
        "queue": one.fact.queue and asdict(one.fact.queue),
        "launches": one.fact.launches and asdict(one.fact.launches),
        "kinds": {kind.name: kind.share for kind in one.kinds} or None,
        "tensor_cores": one.tensor_cores,
        "critical_path_s": {part.name: part.seconds for part in one.critical} or None,
        "collectives": [asdict(exchange) for exchange in one.fact.exchanges],
    }


def _nanoseconds(seconds: float | None) -> float | None:
    """Return seconds to the nanosecond: with many ranks, more digits would be most of the file."""
    return None if seconds is None else round(seconds, 9)
