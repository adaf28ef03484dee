"""A hand-made report that contains every element once: a slow loader in front of an FP32 model."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from advisor.fleet.history import PastRun
from advisor.judging.judge import Estimate, Finding, Outcome, RuleVerdict
from advisor.judging.verdict import Verdict
from advisor.metrics.base import Goals, Metric, Metrics, Need
from advisor.models.anatomy import Anatomy, MemorySettings
from advisor.models.cost import saving
from advisor.models.gpus import peaks
from advisor.models.memory import States
from advisor.report.anatomy import WhatIf, controls
from advisor.report.operations import Operation, Operations
from advisor.report.operator_table import OperatorTable, operator_table
from advisor.report.quantities import Quantity
from advisor.report.ranks import OfRank, Ranks
from advisor.report.report import (
    CONTRACT_PHASES,
    Note,
    Overhead,
    Phase,
    Recommendation,
    Report,
    RunInfo,
    StepTimes,
)
from advisor.report.timeline import Chart, Curve
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
from advisor.verify.kept import Verified
from profiler.schema import REST, DeviceFact, Operator, Process, RegionFact, TraceFact

MEAN = 0.200
SECONDS = {
    "data_wait": 0.080,
    "loader_overhead": 0.002,
    "h2d": 0.006,
    "forward": 0.034,
    "backward": 0.061,
    "optimizer": 0.010,
    "gc": 0.001,
    "other": 0.006,
    "evaluation": 0.0,
    "checkpoint_save": 0.0,
}
GIB = 1024**3


def golden() -> Report:
    return Report(
        version="0.1.0",
        run=RunInfo(
            command=("train.py", "--lr", "3e-4", "--name", "first try"),
            exit_status=0,
            ended="completed",
            started="2025-11-21T04:00:00+00:00",
            duration=212.4,
            ranks=1,
            nodes=1,
        ),
        steps=StepTimes(
            count=1000,
            steady=960,
            micro_steps=1.0,
            batches=1000.0,
            mean=MEAN,
            p50=0.196,
            p90=0.221,
            p99=0.304,
            interval=(0.197, 0.203),
        ),
        phases=tuple(
            Phase(name=name, seconds=SECONDS.get(name), share=SECONDS[name] / MEAN if name in SECONDS else None)
            for name in CONTRACT_PHASES
        ),
        between=(
            Phase(name="evaluation", share=0.041),
            Phase(name="checkpoint_save"),
            Phase(name="epoch_start", share=0.0),
        ),
        regions=(
            RegionFact(id=0, name="loss", count=1000, seconds=4.5),
            RegionFact(id=1, name="log", count=40, seconds=0.1),
        ),
        advice=(_workers(), _bf16(), _fused()),
        before=MEAN,
        after=Estimate(0.044, 0.0444, 0.071),
        checked=(
            *(
                RuleVerdict(rule=one.finding.rule, outcome=Outcome.FIRED, why="data_wait_fraction = 0.4")
                for one in (_workers(), _bf16(), _fused())
            ),
            RuleVerdict(
                rule=a_rule("data-pin-memory", "Copy batches from pinned memory", Area.STALLS),
                outcome=Outcome.PASSED,
                why="Not the case here: batches come from pageable memory and copying them holds up the GPU.",
            ),
            RuleVerdict(
                rule=a_rule("zero-1-2", "Shard the optimizer state", Area.DISTRIBUTED),
                outcome=Outcome.NOT_MEASURED,
                why="The allocator's statistics were not recorded",
                remedy="Record with a CUDA build of torch.",
                need=Need.GPU,
            ),
            RuleVerdict(
                rule=a_rule("grad-accum", "Accumulate gradients", Area.MEMORY),
                outcome=Outcome.CRASHED,
                why="ZeroDivisionError: division by zero",
                remedy="This is a mistake in the rule: please report it.",
            ),
        ),
        quantities=(
            Quantity(
                name="data_wait_fraction",
                label="share of the step waiting for data",
                unit="1",
                meaning="Share of a step without a batch.",
                value=0.4,
            ),
            Quantity(
                name="gpu_utilization",
                label="GPU utilization",
                unit="1",
                meaning="Share of time in which any kernel ran.",
                value=0.61,
            ),
            Quantity(name="sm_active", label="SMs active", unit="1", meaning="Share of SMs with a warp.", value=0.37),
            Quantity(
                name="step_time_mean", label="mean step time", unit="s", meaning="Mean of the steady steps.", value=MEAN
            ),
            Quantity(
                name="exposed_comm_fraction",
                label="share of the step in exposed communication",
                unit="1",
                meaning="Share of a step in collectives.",
                missing="One rank alone has no collectives",
                remedy="Record a run with several ranks.",
            ),
        ),
        memory={
            "params": 1.4 * GIB,
            "grads": 1.4 * GIB,
            "optim": 2.8 * GIB,
            "activations": 21.5 * GIB,
            "nontorch": 0.6 * GIB,
        },
        memory_total=79.1 * GIB,
        what_if=_what_if(),
        operations=Operations(
            device="cuda",
            steps=9,
            seconds=0.11,
            count=140,
            shown=(
                Operation(
                    name="ampere_sgemm_128x64_tn",
                    kind="matmul",
                    calls=96,
                    seconds=0.07,
                    share=0.64,
                    tensor_cores=False,
                ),
                Operation(name="multi_tensor_apply_kernel", kind="optimizer", calls=4, seconds=0.011, share=0.1),
            ),
        ),
        operators=_operators(),
        charts=_charts(),
        problems=(
            Note(source="nvml", message="Power could not be read: not supported on this device.", count=3),
            Note(source="windows", message="The program uses torch.profiler itself; no windows were opened."),
        ),
        environment={
            "machine": {"host": "node-7", "cores": 12.0, "memory_total": 256 * GIB},
            "software": {"python": "3.11.7", "torch": "2.13.0", "cuda": "13.0", "hip": None},
            "gpu": {"name": "NVIDIA A100-SXM4-80GB", "capability": "8.0", "mig": False},
            "loader": {"place": "train.py:31", "dataset": "ImageFolder", "num_workers": 2},
        },
        overhead=Overhead(
            fraction=0.0041, hooks=0.12, windows=0.75, recorder_cpu=2.1, events=18_422, events_lost=0, budget=0.01
        ),
        goals=Goals(gpu_price=2.5),
        gpu_hours=0.059,
    )


def tried() -> Report:
    """Return the same after trials: one as predicted, one harmful, one that could not be made; with a tuned program and
    two ranks."""
    confirmed = Verified(
        rule="data-more-workers",
        verdict=Verdict.CONFIRMED,
        predicted=(0.33, 0.4, 0.4),
        removed=(0.31, 0.37, 0.43),
        seconds=(0.2, 0.126),
        memory=5 * 1024**2,
        losses_agree=True,
        steps=345,
        processes=3,
        leaves="non_blocking=True",
    )
    harmful = replace(
        confirmed,
        rule="precision-bf16",
        verdict=Verdict.HARMFUL,
        removed=(-0.12, -0.09, -0.06),
        seconds=(0.2, 0.218),
        losses_agree=False,
        why="A step takes longer.",
        leaves="",
    )
    failed = Verified(rule="optimizer-fused", verdict=Verdict.FAILED, predicted=None, why="The change was not made.")
    fitted = replace(
        failed,
        rule="ckpt-every-n",
        verdict=Verdict.CONFIRMED,
        why="With this the program took 40 steps; without, it ran out of memory in its first step.",
        applied=True,
    )
    report = golden()
    advice = zip(report.advice, (confirmed, harmful, failed), strict=True)
    return replace(
        report,
        advice=tuple(replace(item, verified=found) for item, found in advice),
        run=replace(report.run, ranks=2),
        ranks=Ranks(count=2, rows=tuple(_rank(number, wait) for number, wait in ((0, 0.02), (1, 0.08)))),
        applied=(replace(confirmed, rule="data-workers-zero", seconds=(0.5, 0.25), applied=True), fitted),
        history=(
            PastRun(1_763_600_000.0, 0.25, "runs/second", "0123456789abcdef", ("commit", "work")),
            PastRun(1_763_500_000.0, 0.16, "runs/first", None, ()),
        ),
    )


def hostile(text: str) -> Report:
    """Return the same with `text` instead of every string that comes from outside."""
    report = tried()
    first = report.advice[0]
    assert first.verified is not None
    assert report.operations
    assert report.operators
    change = Change(
        language="python",
        code=f"loader = {text}",
        file=text,
        line=1,
        differences=(CodeDifference(text, text, text),),
    )
    verified = replace(first.verified, rule=text, why=text, leaves=text)
    return replace(
        report,
        version=text,
        applied=(replace(verified, applied=True),),
        history=(PastRun(0.0, 0.1, text, text, ("host",)),),
        run=replace(report.run, command=(f"{text}.py", text)),
        advice=(
            altered(
                first, title=text, condition=text, note=text, then=text, changes=(change,), risk=text, verified=verified
            ),
            *report.advice[1:],
        ),
        checked=tuple(replace(check, why=text, remedy=text) for check in report.checked),
        regions=tuple(replace(region, name=text) for region in report.regions),
        problems=(Note(source=text, message=text),),
        environment={text: {"dataset": text}},
        operations=replace(
            report.operations, shown=tuple(replace(one, name=text, kind=text) for one in report.operations.shown)
        ),
        operators=replace(
            report.operators,
            gpu=text,
            rows=tuple(replace(row, name=text, path=(text,), kernel=text, dtype=text) for row in report.operators.rows),
        ),
        charts=tuple(
            replace(chart, curves=tuple(replace(curve, label=text) for curve in chart.curves))
            for chart in report.charts
        ),
    )


def empty() -> Report:
    """Return the report of a program that was killed before it trained."""
    return Report(
        version="0.1.0",
        run=RunInfo(
            command=("train.py",), exit_status=137, signal=9, ended="killed", started="2025-11-21T04:00:00+00:00"
        ),
        phases=tuple(Phase(name=name) for name in CONTRACT_PHASES),
        between=tuple(Phase(name=name) for name in ("evaluation", "checkpoint_save", "epoch_start")),
        checked=tuple(
            RuleVerdict(
                rule=check.rule,
                outcome=Outcome.NOT_MEASURED,
                why="No step was seen",
                remedy="Let it train for 40 steps.",
                need=Need.RUN,
            )
            for check in golden().checked
        ),
    )


def a_rule(name: str, title: str, area: Area, condition: str = "this is so.", **more: Any) -> Rule:
    return Rule(title, area, Confidence.ROOFLINE, difficulty=1, id=name, when=_when(condition), **more)


def _when(condition: str) -> Callable[[Metrics], Evidence | None]:
    def when(m: Metrics) -> Evidence | None:
        return None

    when.__doc__ = f"If {condition}"
    return when


def altered(item: Recommendation, **changes: Any) -> Recommendation:
    """Return the recommendation with other values, each set where it is stored: in itself, its finding, advice,
    evidence or rule."""

    def taken(*names: str) -> dict[str, Any]:
        return {name: changes.pop(name) for name in names if name in changes}

    finding, rule = item.finding, item.finding.rule
    if "rule" in changes:
        rule = replace(rule, id=changes.pop("rule"))
    if "condition" in changes:
        rule = replace(rule, when=_when(changes.pop("condition")))
    facts = changes.pop("evidence", finding.evidence.facts)
    advice = replace(
        finding.advice, **taken("title", "then", "changes", "basis", "memory", "host_memory", "risk", "intervention")
    )
    judged = taken("severity", "alone", "in_plan", "cost", "held_back")
    finding = replace(finding, rule=rule, advice=advice, evidence=replace(finding.evidence, facts=facts), **judged)
    return replace(item, finding=finding, **changes)


def _metric(name: str, label: str, unit: str, doc: str) -> Metric[float]:
    return Metric(name, unit, doc, lambda m: 0.0, label)


def _workers() -> Recommendation:
    rule = a_rule(
        "data-more-workers",
        "Use more DataLoader workers",
        Area.STALLS,
        "the workers are always busy, and still most fetches find no batch ready.",
        page="A step cannot start before its batch is there.\n\nWrong when: storage, not the workers, sets the pace.",
        sources=(
            Source(
                "PyTorch Performance Tuning Guide",
                "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
            ),
            Source("Mohan et al., Analyzing and Mitigating Data Stalls in DNN Training, VLDB 2021"),
        ),
    )
    waiting = _metric(
        "data_wait_fraction",
        "share of the step waiting for data",
        "1",
        "Share of a step in which no batch was ready.",
    )
    empty = _metric(
        "queue_empty_fraction", "fetches that found no batch ready", "1", "Share of fetches that found no batch."
    )
    making = _metric("batch_time", "time to make a batch", "s", "Seconds per batch.")
    advice = Advice(
        then="Give the loader 5 workers instead of 2: a batch takes 400 ms to make, a step 120 ms without its wait.",
        changes=(
            Change(
                language="python",
                file="train.py",
                line=31,
                code="loader = DataLoader(\n    dataset,\n    batch_size=64,\n    num_workers=5,  # was 2\n"
                "    persistent_workers=True,\n    prefetch_factor=2,\n)",
                differences=(CodeDifference("num_workers", "2", "5"),),
            ),
        ),
        basis="A step takes as long as the slower of the loader (batch_time / workers) and everything else.",
        host_memory=3 * 450 * 1024**2,
        risk="Three more processes and their memory on the host.",
    )
    finding = Finding(
        rule=rule,
        severity=Severity.ACTION,
        evidence=Evidence(
            (Measurement(waiting, 0.4, 0.05), Measurement(empty, 0.97, 0.5), Measurement(making, 0.4, None))
        ),
        advice=advice,
        alone=Estimate(0.33, 0.4, 0.4),
        in_plan=Estimate(0.33, 0.4, 0.4),
        saving=saving(0.4, 2.5),
        score=1.0,
    )
    return Recommendation(finding=finding, note="The loader made at train.py:31 over ImageFolder.")


def _bf16() -> Recommendation:
    workers = _workers().finding
    rule = a_rule(
        "precision-bf16",
        "Compute matrix products in bfloat16",
        Area.PRECISION,
        "matrix products run in FP32 on a GPU with fast BF16 tensor cores.",
        page=workers.rule.page,
        sources=workers.rule.sources,
    )
    share = _metric("fp32_matmul_share", "share of GPU time in FP32 matrix products", "1", "Share of GPU-busy time.")
    advice = replace(
        workers.advice,
        then="Wrap forward and loss in autocast; BF16 needs no GradScaler.",
        changes=(
            Change(
                language="python",
                code='with torch.autocast("cuda", dtype=torch.bfloat16):\n    loss = criterion(model(x), y)',
            ),
        ),
        memory=-8 * GIB,
        host_memory=None,
        risk="Check that the loss follows that of the FP32 run.",
    )
    finding = replace(
        workers,
        rule=replace(rule, difficulty=2),
        evidence=Evidence((Measurement(share, 0.58, 0.2),)),
        advice=advice,
        alone=Estimate(0.0, 0.0, 0.0),
        in_plan=Estimate(0.48, 0.588, 0.636),
        saving=saving(0.588, 2.5),
    )
    return Recommendation(finding=finding)


def _fused() -> Recommendation:
    bf16 = _bf16().finding
    rule = replace(
        bf16.rule,
        id="optimizer-fused",
        title="Use the fused optimizer",
        area=Area.KERNELS,
        when=_when("the optimizer takes a noticeable share of the step and runs tensor by tensor."),
    )
    advice = replace(
        bf16.advice,
        then="Pass fused=True to AdamW.",
        changes=(
            Change(language="python", code="torch.optim.AdamW(params, lr=3e-4, fused=True)", file="train.py", line=44),
        ),
        memory=None,
    )
    finding = replace(
        bf16,
        rule=rule,
        severity=Severity.SUGGEST,
        advice=advice,
        alone=Estimate(0.0, 0.0, 0.0),
        in_plan=Estimate(0.05, 0.101, 0.15),
        saving=saving(0.101, 2.5),
        cost=Estimate(0.04, 0.09, 0.12),
    )
    return Recommendation(finding=finding)


def _rank(number: int, wait: float) -> OfRank:
    """Return a rank that waits for data, or in the backward pass for the rank that does."""
    phases = {"data_wait": wait, "forward": 0.034, "backward": 0.141 - wait, "optimizer": 0.01}
    about: dict[str, Any] = {
        "node": 0,
        "host": None,
        "steps": 1000,
        "memory_peak": None,
        "events_lost": 0,
        "remark": "",
    }
    return OfRank(rank=number, phases=phases, step_time=MEAN, **about)


def _what_if() -> WhatIf:
    anatomy = Anatomy(
        now=MemorySettings(batch=64, moments="adamw"),
        capacity=79.1 * GIB,
        states=States(1.4 * GIB, 1.4 * GIB, 2.8 * GIB),
        unit=60 * 1024**2,
        activations=21.5 * GIB,
        rest=1.5 * GIB,
        blocks=24,
        parameters=1.4 * GIB / 4,
    )
    return WhatIf(anatomy=anatomy, largest_batch=256, controls=controls(anatomy, 4, autocast=True))


def _operators() -> OperatorTable:
    made: dict[str, Any] = {"pid": 1, "window": 0, "device": "cuda", "kernels": 960, "host": 0.004, "gap": 0.003}
    rows = (
        Operator(
            **made,
            name="aten::addmm",
            inputs=((4096,), (8192, 4096), (4096, 4096)),
            dtype="fp32",
            arithmetic="fp32",
            calls=960,
            total=0.7,
            kind="matmul",
            phase="forward",
            path=("Model", "Layer", "Linear"),
            kernel="ampere_sgemm_128x64_tn",
            flop=9e12,
            bytes=2.6e11,
        ),
        Operator(
            **made,
            name="aten::native_layer_norm",
            inputs=((8192, 4096),),
            dtype="fp32",
            arithmetic="fp32",
            calls=960,
            total=0.35,
            kind="normalization",
            phase="forward",
            path=("Model", "Layer", "LayerNorm"),
            flop=1.6e11,
            bytes=2.6e11,
        ),
        Operator(**made, name="my::operator", inputs=(), calls=10, total=0.05, phase="backward"),
        Operator(**made, name=REST, inputs=(), calls=40, total=0.01),
    )
    devices = (DeviceFact(id=0, name="NVIDIA A100-SXM4-80GB", memory_total=80 * GIB),)
    traces = (TraceFact(id=0, steps=10, seconds=2.0),)
    process = Process(pid=1, rank=0, started=0.0)
    table = operator_table(
        Profile(runs=(), ranks=(Rank(process=process, operators=rows, devices=devices, traces=traces),)),
        peaks("NVIDIA A100-SXM4-80GB"),
    )
    assert table
    return table


def _charts() -> tuple[Chart, ...]:
    times = tuple(0.2 * i for i in range(1000))
    wave = [0.2 + 0.02 * math.sin(i / 7) + (0.1 if i % 97 == 0 else 0) for i in range(1000)]
    gaps = [None if 300 < i < 330 else 0.6 + 0.3 * math.sin(i / 40) for i in range(1000)]
    return (
        Chart(
            title="Step time",
            unit="s",
            curves=(
                Curve(label="step", times=times, values=tuple(wave)),
                Curve(label="waiting for data", times=times, values=tuple(v - 0.12 for v in wave)),
                Curve(label="epoch start", times=times[::250], values=(0.9, 0.7, 0.72, 0.8), kind="points"),
            ),
        ),
        Chart(title="GPU", unit="1", curves=(Curve(label="utilization", times=times, values=tuple(gaps)),)),
        Chart(
            title="CPU",
            unit="cores",
            curves=(Curve(label="program", times=times, values=tuple(2.4 + math.sin(i / 90) for i in range(1000))),),
            limit=12.0,
            limit_label="allowed",
        ),
        Chart(
            title="GPU memory",
            unit="B",
            curves=(Curve(label="used on the GPU", times=times, values=(28.0 * GIB,) * 1000),),
            limit=79.1 * GIB,
        ),
    )
