"""The same rows under other tools that give advice: each in a venv of its own, FOLDER/NAME, with torch and the package.

Their advice is coarser than a rule: "input-bound" may be any of our rules about input. MEANS lists which of our rules a
piece of advice may mean; it is right if the rule that must come first is among them, which favors coarse advice. A
tool's own lowest severity counts as information. Each row runs once, with the lines that the tool's manual asks for.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import recording
from recording import Failed
from scores import RowResult
from seen import Seen

WORKERS = ("data-workers-zero", "data-more-workers", "data-persistent-workers", "data-jitter-prefetch")
INPUT = (*WORKERS, "data-io-format", "data-collate")

MEANS = {
    "traceml-ai": {
        "INPUT_BOUND": INPUT,  # "Increase workers, prefetch, or storage throughput"; its table: workers, collation
        "RESIDUAL_HEAVY": ("host-logging", "ckpt-interval-daly"),  # "logging, checkpointing, validation, CPU stalls"
        "H2D_BOUND": ("data-pin-memory", "h2d-overlap"),
        "COMPUTE_BOUND": ("precision-bf16", "batch-raise"),  # "mixed precision, batch size, or deeper profiling"
        "INPUT_STRAGGLER": ("straggler-rank",),
        "COMPUTE_STRAGGLER": ("straggler-rank",),
        "H2D_STRAGGLER": ("straggler-rank",),
        "STRAGGLER": ("straggler-rank",),
    },
    "gpuprof": {
        "waiting on the loader": WORKERS,  # "Increase num_workers, pin_memory, persistent_workers, prefetch_factor"
        "Prefetch queue starved": WORKERS,
        "CPU pegged": ("data-offload-preprocess", "data-collate"),  # "Move augmentations to GPU"
        "disk hot": ("data-io-format",),
        "Cold-cache": ("data-io-format",),
        "Cache thrashing": ("data-io-format",),
        "worker imbalance": ("data-jitter-prefetch",),
        "p99/p50": ("ckpt-interval-daly", "host-logging", "data-jitter-prefetch"),  # "Logging/checkpoint spikes"
        "unaccounted": ("compile-model", "host-logging"),  # "Python overhead"
        "MFU": ("precision-bf16", "batch-raise", "compile-model"),
        "arithmetic intensity": ("batch-raise",),
        "NCCL comm": ("ddp-no-sync",),
        "Rank skew": ("straggler-rank",),
        "late on": ("straggler-rank",),
        "Peak memory": ("ckpt-every-n",),
        "thermal throttling": ("gpu-throttled",),
    },
    "alloc": {
        "DL001": ("data-more-workers",),
        "DL002": ("data-pin-memory",),
        "DL003": ("data-persistent-workers",),
        "DL004": ("data-jitter-prefetch",),
        "DL005": ("data-workers-zero",),
        "MEM002": ("precision-bf16",),
        "MEM005": ("compile-model",),
        "DIST005": ("ddp-not-dataparallel",),
        "THRU001": ("cudnn-benchmark",),
        "STRAG001": ("straggler-rank",),
        "UPG002": ("precision-tf32",),
    },
}
"""By tool, and by part of its advice: which of our rules it may mean."""


@dataclass(frozen=True)
class Peer:
    """A tool's advice on the rows."""

    name: str
    results: list[RowResult]
    why: str = ""
    """Why it was not run, or a note on its results."""


@dataclass(frozen=True)
class Tool:
    name: str
    advice: Callable
    """(row, folder of the venv's programs, scratch folder) -> [(what it said, whether that is above information)]."""
    note: str = ""


def on(venvs, rows, scratch, note):
    """Return the advice of every tool on the rows that name no other model; `note` receives the progress."""
    return [_one(tool, Path(venvs).resolve() / tool.name / "bin", rows, scratch, note) for tool in TOOLS]


def _one(tool, programs, rows, scratch, note):
    if not (programs / "python").exists():
        make = f"python -m venv {programs.parent} && {programs}/pip install torch numpy {tool.name}"
        return Peer(tool.name, [], f"not run, {programs} does not exist: {make}")
    results = []
    for row, cores, skipped in rows:
        each = RowResult(row, cores, skipped=skipped)
        results.append(each)
        if skipped:
            continue
        try:
            each.runs.append(_seen(tool.name, row, tool.advice(row, programs, scratch)))
        except (Failed, OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
            each.failed = f"{type(error).__name__}: {str(error)[:200]}"
        note(f"{tool.name} on {row.id}: {each.runs[0].said if each.runs else each.failed}")
    return Peer(tool.name, results, tool.note)


def _seen(name, row, advice):
    """Return, for each piece of advice, the rule that must come first if it may mean that, else the first in MEANS."""

    def rule(text):
        means = next((rules for part, rules in MEANS[name].items() if part in text), ("none of ours",))
        return next((wanted for wanted in row.order if wanted in means), means[0])

    above = [text for text, is_above in advice if is_above]
    return Seen(above=tuple(dict.fromkeys(rule(text) for text in above)), said=above[0] if above else "")


def traceml(row, programs, scratch):
    """Run `traceml run` with its lines for a plain loop; return the verdict of its final summary."""
    logs = scratch / "traceml"
    shutil.rmtree(logs, ignore_errors=True)
    script, words = recording.script(row)[-1 - len(row.words)], row.words
    ranks = ["--nproc-per-node", row.ranks] if row.ranks > 1 else []
    line = [programs / "traceml", "run", "--logs-dir", logs, "--run-name", "row", *ranks, script]
    recording.run(row, [*line, "--args", *words, "--watch", "traceml"], scratch)
    found = json.loads((logs / "row" / "final_summary.json").read_text())["primary_diagnosis"]
    return [(found["kind"], found["severity"] in ("crit", "warn"))]


def gpuprof(row, programs, scratch):
    """Run its context manager around the loop, then `gpuprof insights`; return high severity before medium."""
    for database in scratch.glob("gpuprof*"):
        database.unlink()
    recording.run(row, [*recording.script(row, programs / "python"), "--watch", "gpuprof"], scratch)
    stdout = _stdout([programs / "gpuprof", "insights", "--json"], scratch)
    order = ("high", "medium", "low")
    found = sorted(json.loads(stdout)["insights"], key=lambda each: order.index(each["severity"]))
    return [(re.sub(r"\s+", " ", each["title"]), each["severity"] != "low") for each in found]


def alloc(row, programs, scratch):
    """Run `alloc diagnose`, which reads the program without running it."""
    script = recording.script(row)[-1 - len(row.words)]
    stdout = _stdout([programs / "alloc", "diagnose", "--json", "--no-artifact", script], scratch)
    return [
        (f"{each['rule_id']} {each['title']}", each["severity"] != "info") for each in json.loads(stdout)["findings"]
    ]


def _stdout(line, folder):
    line = [str(word) for word in line]
    done = subprocess.run(line, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise Failed(done.stderr[-500:])
    return done.stdout


TOOLS = (
    Tool("traceml-ai", traceml),
    Tool("gpuprof", gpuprof, "without a GPU its GPU figures are made up (MockGPU)"),
    Tool("alloc", alloc, "reads the program; `alloc run` samples GPUs only and measures nothing here"),
)
