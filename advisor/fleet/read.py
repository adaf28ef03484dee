"""Read one run folder into rows. A pure function, so that any engine can map it over any number of folders.

A folder may be broken, half-written, from another version, or made by an attacker: it becomes a row in any case.
"""

import hashlib
import json
import math
import posixpath
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from advisor.fleet.columns import BETWEEN_STEPS, CAUSES, AdviceRow, RunRow
from advisor.fleet.places import STORES, RunFile, fetch, listing
from profiler.errors import ProfilerError
from profiler.schema import Run
from profiler.store import reader

SCHEMA = "profile-train/result@1"
LARGEST = {"result.json": 32 * 2**20, "store": 512 * 2**20}
"""Largest file to read, in bytes: a week-long run has a tenth of that."""

TEXT = 500
"""Characters kept of a text."""

MOST_ADVICE = 100


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one run folder."""

    run: RunRow
    advice: tuple[AdviceRow, ...] = ()


def read(folder: str, import_id: str = "") -> Rows:
    """Return the rows of a run folder, a path or URL. Never raises."""
    now, stamp = time.time(), ""
    try:
        files = listing(folder)
        stamp = fingerprint(files)
        with tempfile.TemporaryDirectory() as scratch:
            return _read(folder, files, stamp, import_id, now, Path(scratch))
    except ProfilerError as error:
        note = str(error)
    except Exception as error:  # noqa: BLE001 - a store on the network raises its own errors
        note = f"{type(error).__name__}: {error}"
    return Rows(
        RunRow(
            run_id=f"unreadable-{_digest(folder)}",
            import_id=import_id,
            imported_at=now,
            day=_day(None, now),
            folder=_text(folder, 4096) or "",
            fingerprint=stamp,
            status="unreadable",
            note=_text(note) or "",
        )
    )


def fingerprint(files: Sequence[RunFile]) -> str:
    """Return a digest of the files that a run is read from, without reading them."""
    return _digest(repr(sorted((file.name, file.size, file.stamp) for file in files)))


def _read(folder: str, files: Sequence[RunFile], stamp: str, import_id: str, now: float, scratch: Path) -> Rows:
    runs, note = _stored(files, scratch)
    result, problem = _result(files, scratch)
    if not runs and result is None:
        raise ProfilerError(note or problem or "The folder holds no recording.", "")
    first_run = runs[0] if runs else None
    run_fields = _table(result, "run")
    command = first_run.command if first_run else tuple(str(word) for word in _rows(run_fields, "command")[:100])
    started = first_run.started_at if first_run else _unix(run_fields.get("started"))
    duration = _number(first_run.duration) if first_run else _number(run_fields.get("duration_s"))
    project = _text(first_run.project) if first_run else None
    script = script_of(command, first_run.cwd if first_run else "", project)
    shared_columns: dict[str, Any] = {
        "run_id": _text(first_run.id if first_run else f"folder-{_digest(folder)}", 100),
        "import_id": import_id,
        "day": _day(started, now),
        "project": project,
        "script": _text(script),
    }
    columns = _measured(result or {}, runs, duration, script)
    hours = {name: columns[name] for name in ("gpu_hours", "cpu_hours")}
    advice = _advice(result or {}, columns.pop("base"), {**shared_columns, **hours, "started": _number(started)})
    plan_shares = [row.saves_in_plan for row in advice if row.saves_in_plan is not None]
    run = RunRow(
        **shared_columns,
        imported_at=now,
        folder=_text(folder, 4096) or "",
        fingerprint=stamp,
        status="complete" if result is not None else "partial",
        note=_text(" ".join(filter(None, (note, problem)))) or "",
        version=_text(first_run.version) if first_run else None,
        started=_number(started),
        duration_s=duration,
        outcome=_text(first_run.outcome if first_run else run_fields.get("ended"), 20),
        command=_text(" ".join(command)),
        commit_id=_text(first_run.commit, 64) if first_run else None,
        user_name=_text(first_run.user) if first_run else None,
        host=_text(first_run.host) if first_run else None,
        nodes=_whole(run_fields.get("nodes")) or (len(runs) or None),
        ranks=_whole(run_fields.get("ranks")),
        plan_saves=sum(plan_shares) if result is not None else None,
        **columns,
    )
    return Rows(run, advice)


def _stored(files: Sequence[RunFile], scratch: Path) -> tuple[list[Run], str]:
    """Return the runs in each node's store, and what is wrong with the stores."""
    runs, notes = list[Run](), list[str]()
    for file in files:
        if not file.name.endswith(STORES):
            continue
        try:
            runs += reader.runs(fetch(file, LARGEST["store"], scratch))
        except ProfilerError as error:
            notes.append(error.message)
    return runs, " ".join(notes)


def _result(files: Sequence[RunFile], scratch: Path) -> tuple[dict[str, Any] | None, str]:
    """Return result.json, or why it cannot be used."""
    result_file = next((file for file in files if file.name == "result.json"), None)
    if result_file is None:
        return None, "There is no result.json: profile-train report makes it."
    try:
        result = json.loads(fetch(result_file, LARGEST["result.json"], scratch).read_bytes(), parse_constant=_refuse)
    except ProfilerError as error:
        return None, error.message
    except (OSError, ValueError, RecursionError) as error:
        return None, f"result.json cannot be read ({error}): profile-train report makes it again."
    schema = result.get("schema") if isinstance(result, dict) else None
    if schema != SCHEMA:
        return None, f"result.json is of the schema {str(schema)[:60]!r}; this profile-train reads {SCHEMA}."
    return result, ""


def _measured(result: dict[str, Any], stored: Sequence[Run], duration: float | None, script: str) -> dict[str, Any]:
    """Return the columns that were measured, and the share of the run's hours that its gains refer to (`base`)."""
    steps, machine = _table(result, "steps"), _table(result, "machine")
    times, phases = _table(steps, "time_s"), _table(result, "phases")
    mean, count = _number(times.get("mean")), _whole(steps.get("count"))
    step_share = min(1.0, count * mean / duration) if mean and count and duration else None
    shares = {cause: _share(_metric(result, name)) for cause, name in BETWEEN_STEPS.items()}
    outside_shares = [*shares.values(), _share(_metric(result, "evaluation_share"))]
    for cause in CAUSES:
        if cause not in BETWEEN_STEPS:
            share = _share(phases.get(cause))
            shares[cause] = None if share is None or step_share is None else share * step_share
    gpu, computer = _group(result, "gpu"), _group(result, "machine")
    device = _text((computer or {}).get("cpu_model") if gpu is None else gpu.get("name"))
    hours = _number(_metric(result, "gpu_hours"))
    hosts = {run.host: _number(run.cores) or 0.0 for run in stored}  # a host may have several recorders
    cores = sum(hosts.values()) or _number(machine.get("cores"))
    no_gpu = computer is not None and gpu is None and hours is None
    representative = machine.get("representative")
    return {
        **{f"lost_{cause}": share for cause, share in shares.items()},
        "base": None if step_share is None else min(1.0, step_share + sum(share or 0.0 for share in outside_shares)),
        "device": device,
        "gpu_hours": hours,
        "cpu_hours": cores * duration / 3600 if no_gpu and cores and duration else None,
        "gpu_price": _number(_table(_table(result, "goals"), "declared").get("gpu_price")),
        "steps": count,
        "step_time_s": mean,
        "step_p50_s": _number(times.get("p50")),
        "crowded": None if not isinstance(representative, bool) else not representative,
        "work": _work(result, script, device),
    }


def _work(result: dict[str, Any], script: str, device: str | None) -> str | None:
    model, batch = _group(result, "model"), _number(_metric(result, "batch_bytes"))
    if model is None or batch is None or device is None:
        return None
    micro, ranks = _table(result, "steps").get("micro_steps_per_step"), _table(result, "run").get("ranks")
    key = (script, model.get("name"), model.get("parameters"), batch, micro, ranks, device)
    return _digest(repr(key))


def _advice(result: dict[str, Any], base: float | None, shared: dict[str, Any]) -> tuple[AdviceRow, ...]:
    """Return the advice worth following, in the order of the plan; gains are shares of the run's hours."""
    rows, remaining_share = list[AdviceRow](), 1.0
    for item in _rows(result, "advice")[:MOST_ADVICE]:
        if not isinstance(item, dict) or item.get("severity") not in ("action", "suggest"):
            continue
        gain = _table(item, "gain")
        alone_share = _share(_table(gain, "step_time_removed").get("expected"))
        plan_share = _share(_table(gain, "in_plan").get("expected"))
        rows.append(
            AdviceRow(
                **shared,
                rule=_text(item.get("rule"), 100) or "?",
                title=_text(item.get("title")) or "?",
                position=len(rows),
                saves_alone=None if alone_share is None or base is None else alone_share * base,
                saves_in_plan=None if plan_share is None or base is None else remaining_share * plan_share * base,
            )
        )
        remaining_share *= 1 - (plan_share or 0.0)
    return tuple(rows)


def script_of(command: Sequence[str], cwd: str, project: str | None) -> str:
    """Return the name that all runs of a script share, wherever its repository is."""
    name = next((word for word in command if word.endswith(".py")), "")
    if not name and "-m" in command[:-1]:
        return command[command.index("-m") + 1]
    name = name or (posixpath.basename(command[0]) if command else "?")
    path = posixpath.normpath(posixpath.join(cwd, name))
    parts = path.split("/")
    if project in parts[:-1]:
        relative_parts = parts[len(parts) - parts[::-1].index(project) :]
        return "/".join(relative_parts)
    return posixpath.basename(name) if name.startswith("/") else name


def _group(result: dict[str, Any], kind: str) -> dict[str, Any] | None:
    """Return the first group of that kind in the environment; if there are several, they are numbered."""
    groups = _table(result, "environment").items()
    matches = (group for name, group in groups if name == kind or name.startswith(f"{kind} "))
    return next((group for group in matches if isinstance(group, dict)), None)


def _metric(result: dict[str, Any], name: str) -> Any:
    return _table(_table(result, "metrics"), name).get("value")


def _table(within: dict[str, Any] | None, name: str) -> dict[str, Any]:
    value = (within or {}).get(name)
    return value if isinstance(value, dict) else {}


def _rows(within: dict[str, Any], name: str) -> list[Any]:
    value = within.get(name)
    return value if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    """Return a nonnegative number below 1e15, which no valid value reaches; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        return None
    return float(value)


def _whole(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _share(value: Any) -> float | None:
    number = _number(value)
    return None if number is None else min(1.0, number)


def _text(value: Any, most: int = TEXT) -> str | None:
    """Return a text that any engine can store; None for anything else."""
    if not isinstance(value, str):
        return None
    return value[:most].replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def _unix(iso: Any) -> float | None:
    try:
        return datetime.fromisoformat(iso).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


def _day(started: float | None, now: float) -> str:
    for moment in (started, now):
        try:
            if moment is not None and math.isfinite(moment) and moment > 0:
                return datetime.fromtimestamp(moment, timezone.utc).date().isoformat()
        except (OverflowError, OSError, ValueError):
            continue
    return "1970-01-01"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")
