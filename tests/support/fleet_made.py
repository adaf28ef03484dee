"""Runs of a fleet, made without training: each has a result.json and a store, with the fields that a fleet reads."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from profiler.schema import Run
from profiler.store import Writer

START = 1_767_000_000.0
"""Unix time in the last days of 2025."""

DAY = 86_400.0
FILLER = 38_000
"""Number of characters of a real result.json that a fleet does not read, in verdicts and metrics."""


def result(
    *,
    duration=3600.0,
    gpus=8,
    step=0.1,
    outcome="completed",
    phases=None,
    advice=(),
    filler=0,
    metrics=None,
    price=None,
):
    """Return a result.json as a dictionary; without GPUs if `gpus` is 0."""
    hours = {"gpu_hours": {"value": gpus * duration / 3600, "unit": "h"}} if gpus else {}
    return {
        "schema": "profile-train/result@1",
        "run": {
            "command": ["train.py"],
            "exit_status": 0,
            "ended": outcome,
            "started": "",
            "duration_s": duration,
            "ranks": max(gpus, 1),
            "nodes": 1,
        },
        "machine": {"cores": 4, "others_cpu": 0.0, "representative": True},
        "steps": {
            "count": round(0.9 * duration / step),
            "micro_steps_per_step": 1.0,
            "batches": 0.0,
            "time_s": {"mean": step, "p50": step, "p90": step, "p99": step, "mean_ci95": None},
        },
        "phases": {"data_wait": 0.2, "forward": 0.4, "backward": 0.4, "sync": None} if phases is None else phases,
        "metrics": {"batch_bytes": {"value": 4096, "unit": "B"}, **hours, **(metrics or {})},
        "advice": list(advice),
        "goals": {"declared": {} if price is None else {"gpu_price": price}, "assumed": ""},
        "environment": {
            "machine": {"cpu_model": "A CPU"},
            **({"gpu": {"name": "H100"}} if gpus else {}),
            "model": {"name": "Net", "parameters": 1000},
            "problems": [],
        },
        "verdicts": [{"rule": "filler", "why": "x" * filler}],
    }


def advised(rule, alone, in_plan=None, severity="action", title="Change it"):
    """Return an entry of the advice in result.json."""
    planned = alone if in_plan is None else in_plan

    def gain(value):
        return {"low": value, "expected": value, "high": value}

    return {
        "rule": rule,
        "severity": severity,
        "title": title,
        "gain": {"step_time_removed": gain(alone), "in_plan": gain(planned)},
    }


def row(number=0, **fields):
    """Return the row of a run in its store."""
    known = {
        "id": f"{number:032x}",
        "command": ("train.py",),
        "cwd": "/home/ann/vision",
        "host": "node1",
        "started_at": START,
        "duration": 3600.0,
        "outcome": "completed",
        "cores": 4.0,
        "cores_total": 4,
        "memory_total": 2**34,
        "platform": "Linux",
        "python": "3.11",
        "version": "0.1.0",
        "user": "ann",
        "project": "vision",
        "commit": "a" * 40,
    }
    return Run(**{**known, **fields})


def write(folder: Path, run: Run, what: dict | None) -> Path:
    """Write a run folder; without a result.json if `what` is None."""
    folder.mkdir(parents=True)
    store = Writer(folder, run.host)
    store.add(run)
    store.close()
    if what is not None:
        (folder / "result.json").write_text(json.dumps(what))
    return folder


def copies(root: Path, runs, results) -> None:
    """Write many run folders quickly: each store is a copy of the first, with another row."""
    template = None
    for number, (run, what) in enumerate(zip(runs, results, strict=True)):
        folder = root / f"{number // 500:03d}" / f"run-{number:06d}"
        if template is None:
            template = write(folder, run, what) / f"run-{run.host}.db"
            continue
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(json.dumps(what))
        copy = folder / f"run-{run.host}.db"
        shutil.copyfile(template, copy)
        with closing(sqlite3.connect(copy, isolation_level=None)) as store:
            store.execute("PRAGMA synchronous = OFF")
            names = {"id": run.id, "host": run.host, "started_at": run.started_at, "duration": run.duration}
            names |= {"outcome": run.outcome, "project": run.project, "user": run.user, "commit": run.commit}
            changed = ", ".join(f'"{name}" = ?' for name in names)
            store.execute(f"UPDATE runs SET {changed}", list(names.values()))
