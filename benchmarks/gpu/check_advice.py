"""Check that the advice is right: precision predicted and measured, planted faults, running out of memory."""

from __future__ import annotations

import json
from collections.abc import Iterator

from acceptance import ROOT, Bench, Failed, Result
from table import Row

SAMPLE = ROOT / "samples" / "fp32_transformer.py"
FIRST = {
    "item": {"host-sync-item"},
    "blocking": {"h2d-overlap", "data-pin-memory"},
    "pageable": {"data-pin-memory"},
    "tiny": {"launch-bound-graphs", "compile-model"},
}
"""Rules that name the fault; where there are several, any of them is right."""
MEMORY = ("batch-raise", "ckpt-every-n", "right-size", "ckpt-unneeded")


def precision(bench: Bench) -> Iterator[Row]:
    """Predict what bfloat16 gains, try it, and compare rates with hardware counters."""
    ran = bench.recorded(SAMPLE, name="precision")
    result = ran.result
    first = next(iter(result.advice()), "no advice")
    yield Row("first advice for float32 training", first, "precision-bf16", first == "precision-bf16")
    yield from (_reported(result, name) for name in ("achieved_matmul_flops", "tensor_core_fraction", "tensor_active"))
    tried = bench.command("verify", ran.folder, "precision-bf16", "--allow", "numerics", "--repeats", 2, "--yes")
    yield _verified(ran.folder, tried, dry=bench.dry)


def faults(bench: Bench) -> Iterator[Row]:
    """Record four planted faults: the rule that names each must come first."""
    for fault, right in FIRST.items():
        result = bench.recorded("faulty.py", fault, "--steps", 150 if bench.dry else 600, name=f"fault-{fault}").result
        advice = result.advice()
        yield Row(
            f"planted fault: {fault}",
            ", ".join(advice[:3]) or f"no advice; for information: {', '.join(result.advice('info')[:3])}",
            f"first one of {', '.join(sorted(right))}",
            None if bench.dry else bool(advice) and advice[0] in right,
        )


def out_of_memory(bench: Bench) -> list[Row]:
    """Use up the GPU's memory: there must be a report, and the memory rules must have an answer."""
    ran = bench.recorded("out_of_memory.py", name="oom")
    result = ran.result
    blind = [
        f"{verdict['rule']}: {verdict['why']}"
        for verdict in result.whole["verdicts"]
        if verdict["rule"] in MEMORY and verdict["outcome"] == "not_measured"
    ]
    return [
        Row("status after running out of memory", str(ran.status), "1", ran.status == 1),
        Row("memory rules without an answer", "; ".join(blind) or "none", "none", not blind),
        Row("advice then", ", ".join(result.advice()) or "none"),
    ]


def _reported(result: Result, metric: str) -> Row:
    try:
        return Row(metric, f"{result.metric(metric):.4g}")
    except Failed as problem:
        return Row(metric, str(problem))


def _verified(folder: object, tried: object, *, dry: bool) -> Row:
    title = "precision-bf16, predicted and measured"
    for advice in json.loads((folder / "result.json").read_text())["advice"]:
        if advice["rule"] == "precision-bf16" and advice["verified"]:
            verified = advice["verified"]
            shown = (
                f"{verified['verdict']}: predicted {verified['predicted']}, measured {verified['step_time_removed']}"
            )
            return Row(title, shown, "confirmed", None if dry else verified["verdict"] == "confirmed")
    return Row(title, f"not tried; status {tried.status}: {tried.err.strip()[-200:]}", "tried", None if dry else False)
