"""Check that programs behave as they do without profile-train: run each plain and recorded, and compare.

    python benchmarks/unharmed.py                     the programs of benchmarks/unharmed
    python benchmarks/unharmed.py FOLDER              other programs: each *.py, and the runs of its programs.toml
    python benchmarks/unharmed.py --only "copy*"      some of them; may be given again
    python benchmarks/unharmed.py --json FILE         every difference, for scripts

The exit status, stdout, stderr, the files left in its folder and the processes left behind are compared. Where they
differ, the program is run plain again, twice at most: a line or file in which plain runs differ is not compared. Our
summary may follow on stderr. Programs print their losses, weights and random state themselves. A plain run that
exceeds its time limit makes the row "skipped". The time added is in multiples of `import torch` on this machine. The
exit status is 1 if a program was harmed.
"""

import argparse
import fnmatch
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import checkout
import psutil

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).resolve().with_name("unharmed")
RECORDING = "profile-train-runs"
MARK = "UNHARMED_RUN"
SHOWN = 80
"""Bytes shown of a line that differs."""
PLAIN_RUNS = 3
"""Most plain runs, where a recorded run differs from the first."""
RECORDED_LIMIT = 2
"""Factor on a program's time limit for its recorded run: a busy machine must not decide."""
ENDS_WITHIN = 15.0
"""Seconds within which every process of a run must end after it."""
VOLATILE = re.compile(rb"0x[0-9a-f]{6,}|/tmp/[\w./-]+|\bpid \d+|\[\w+\d*:\d+\]")
"""Addresses, temporary paths and process IDs, which always differ from run to run."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A row of programs.toml, or a file that has none."""

    name: str
    run: tuple[str, ...]
    stdin: str = ""
    env: dict[str, str] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    prepare: tuple[tuple[str, ...], ...] = ()
    needs: tuple[str, ...] = ()
    seconds: float = 600.0

    @property
    def missing(self):
        """Return the first of its needs that this machine does not have."""
        return next((need for need in self.needs if not _has(need)), None)


@dataclass(frozen=True)
class Ran:
    """What a run showed from outside."""

    status: int
    out: list[bytes]
    err: list[bytes]
    files: dict[str, str]
    left: list[str]
    seconds: float
    cut_off: bool = False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    parser.add_argument("--only", action="append", metavar="PATTERN")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()

    programs = [
        one for one in read(args.folder) if not args.only or any(fnmatch.fnmatch(one.name, p) for p in args.only)
    ]
    unit = _import_torch()
    print(f"{len(programs)} programs; import torch takes {unit:.2f} s here\n")
    rows = []
    for program in programs:
        row = judge(args.folder, program)
        rows.append({"name": program.name, **row})
        added = f"{row['added_s'] / unit:+.1f} x" if "added_s" in row else ""
        print(f"{row['verdict']:9} {program.name:28} {added:8} {row.get('why', '')}", flush=True)
        for difference in row.get("differences", ()):
            print(f"            {difference}", flush=True)
    run = [row for row in rows if row["verdict"] != "skipped"]
    harmed = [row["name"] for row in run if row["verdict"] == "harmed"]
    if times := [row["added_s"] / unit for row in run if "added_s" in row]:
        print(f"\nadded wall time in imports of torch: median {statistics.median(times):.1f}, most {max(times):.1f}")
    print(f"unharmed: {len(run) - len(harmed)} of {len(run)}; skipped: {len(rows) - len(run)}")
    if args.json:
        args.json.write_text(json.dumps({"import_torch_s": unit, "programs": rows}, indent=1) + "\n")
    return bool(harmed)


def read(folder):
    """Return the programs of a folder: the rows of its programs.toml, and every other file that no program imports."""
    table = folder / "programs.toml"
    rows = tomllib.loads(table.read_text()).get("program", []) if table.is_file() else []
    named = {word for row in rows for word in (*row["run"], row["name"] + ".py")}
    sources = {path.name: path.read_text(errors="replace") for path in sorted(folder.glob("*.py"))}
    modules = {name for name in sources if any(f"from {name[:-3]} import" in text for text in sources.values())}
    rows += [{"name": name[:-3], "run": ["python", name]} for name in sources if name not in named | modules]
    return [Program(**{key: _frozen(value) for key, value in row.items()}) for row in rows]


def judge(folder, program):
    """Run a program plain and recorded, and plain again while they differ; return the verdict and what differs."""
    if program.missing:
        return {"verdict": "skipped", "why": f"{program.missing} is not installed"}
    plain = [_run(folder, program, recorded=False)]
    if plain[0].cut_off:
        return {"verdict": "skipped", "why": f"it takes longer than {program.seconds:.0f} s here"}
    recorded = _run(folder, program, recorded=True)
    while (found := differences(plain, recorded)) and len(plain) < PLAIN_RUNS:
        plain.append(_run(folder, program, recorded=False))
    return {
        "verdict": "harmed" if found else "unharmed",
        "differences": found,
        "added_s": recorded.seconds - statistics.mean(ran.seconds for ran in plain),
        "status": plain[0].status,
    }


def differences(plain, recorded):
    """Return what the recorded run has and no plain run, except where the plain runs differ."""
    first, found = plain[0], []
    if recorded.status not in (ran.status for ran in plain):
        found.append(f"status {recorded.status} instead of {first.status}")
    for stream in ("out", "err"):
        texts, ours = [getattr(ran, stream) for ran in plain], getattr(recorded, stream)
        if stream == "err" and any(RECORDING.encode() in line for line in ours):
            ours = ours[: max(map(len, texts))]
        if len({len(text) for text in texts}) > 1:
            continue
        if len(ours) != len(texts[0]):
            new = _first_new(ours, texts[0])
            found.append(f"std{stream}: {len(ours)} lines instead of {len(texts[0])}: {new!r}")
            continue
        changed = [
            (lines[0], ours) for *lines, ours in zip(*texts, ours, strict=True) if {*lines} == {lines[0]} != {ours}
        ]
        found += [f"std{stream}: {ours[:SHOWN]!r} instead of {line[:SHOWN]!r}" for line, ours in changed[:3]]
    for name in sorted(recorded.files.keys() | {name for ran in plain for name in ran.files}):
        kept, ours = {ran.files.get(name) for ran in plain}, recorded.files.get(name)
        if len(kept) == 1 and ours not in kept:
            found.append(f"file {name}: {'added' if kept == {None} else 'changed' if ours else 'missing'}")
    if recorded.left and not any(ran.left for ran in plain):
        found.append(f"left behind: {', '.join(recorded.left)}")
    return found


def _run(folder, program, *, recorded):
    with tempfile.TemporaryDirectory(prefix="unharmed-") as scratch:
        place, runs = Path(scratch) / "work", Path(scratch) / RECORDING
        shutil.copytree(folder, place, ignore=shutil.ignore_patterns("__pycache__", "programs.toml"))
        mark = f"{os.getpid()}-{time.monotonic_ns()}"
        environment = {**os.environ, **program.env, MARK: mark, "PYTHONDONTWRITEBYTECODE": "1"}
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        for command in program.prepare:
            subprocess.run(_command(command), cwd=place, env=environment, check=True, stdin=subprocess.DEVNULL)
        command = _command(program.run)
        if recorded:
            command = [*checkout.COMMAND, "--out", str(runs), *command]
        begin = time.monotonic()
        limit = program.seconds * (RECORDED_LIMIT if recorded else 1)
        status, out, err, cut_off = _finish(command, place, environment, program, limit)
        seconds = time.monotonic() - begin
        return Ran(status, _lines(out, scratch), _lines(err, scratch), _files(place), _left(mark), seconds, cut_off)


def _finish(command, place, environment, program, seconds):
    def limit():
        for name, most in program.limits.items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))

    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen(
            command, cwd=place, env=environment, stdin=subprocess.PIPE, stdout=out, stderr=err,
            preexec_fn=limit, start_new_session=True,
        )  # fmt: skip
        cut_off = False
        try:
            child.communicate(program.stdin.encode(), timeout=seconds)
        except subprocess.TimeoutExpired:
            cut_off = True
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        for file in (out, err):
            file.seek(0)
        return child.returncode, out.read(), err.read(), cut_off


def _lines(text, scratch):
    return VOLATILE.sub(b"*", text.replace(scratch.encode(), b"*")).splitlines()


def _files(place):
    paths = [path for path in place.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {str(path.relative_to(place)): hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in paths}


def _left(mark):
    """Kill and return the processes that still have this run's mark in their environment after ENDS_WITHIN s."""
    end = time.monotonic() + ENDS_WITHIN
    while found := [process for process in psutil.process_iter() if _marked(process, mark)]:
        if time.monotonic() > end:
            break
        time.sleep(0.1)
    names = [f"{process.pid} {' '.join(process.cmdline())[:60]}" for process in found]
    for process in found:
        process.kill()
    return names


def _marked(process, mark):
    try:
        return process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _command(words):
    return [sys.executable if word == "python" else word for word in words]


def _frozen(value):
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _has(need):
    if need.startswith("lib:"):
        listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
        return need.removeprefix("lib:") in listed
    found = subprocess.run([sys.executable, "-c", f"import {need}"], capture_output=True, check=False).returncode == 0
    return found or shutil.which(need) is not None


def _first_new(ours, plain):
    return next((line for line in ours if line not in plain), b"")[:SHOWN]


def _import_torch():
    def once():
        begin = time.monotonic()
        subprocess.run([sys.executable, "-c", "import torch"], check=True)
        return time.monotonic() - begin

    return statistics.median(once() for _ in range(3))


if __name__ == "__main__":
    raise SystemExit(main())
