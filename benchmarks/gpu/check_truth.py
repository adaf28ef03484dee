"""Check that recordings are true: identity, memory, phases of known length, kernel windows."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator
from pathlib import Path

from acceptance import Bench, Failed, Result
from table import Row

CLOSE = 0.03
"""Largest difference of a phase from the truth, as a share of a mean step."""


def identity(bench: Bench) -> list[Row]:
    """Run the doctor; compare torch's UUID with NVML's, and the memory headroom with what CUDA reports as free."""
    doctor = bench.command("doctor")
    ran = bench.recorded("identity.py", name="identity")
    said, nvml = ran.said, bench.plain("nvml_calls.py").said
    rows = [
        Row("doctor", f"status {doctor.status}", "0", doctor.status == 0),
        Row(
            "UUID of torch and NVML",
            f"{said['uuid']} {nvml['uuid']}",
            "equal but for the prefix",
            _id(said) == _id(nvml),
        ),
    ]
    headroom = ran.result.metric("mem_headroom") * said["total"]
    off = (headroom - said["room"]) / said["total"]
    rows.append(
        Row("memory headroom", f"{headroom / 2**30:.2f} GiB, {off:+.1%} of memory", "within 2 %", abs(off) <= 0.02)
    )
    return rows


def phases(bench: Bench) -> Iterator[Row]:
    """Compare phases with GPU work of known length, and a data wait that is hidden, then not."""
    steps = 150 if bench.dry else 400
    for name, lengths in (("hidden", (0.004, 0.006, 0.002)), ("visible", (0.0005, 0.001, 0.0005))):
        forward, backward, optimizer = lengths
        arguments = ("--steps", steps, "--forward", forward, "--backward", backward, "--optimizer", optimizer)
        ran = bench.recorded("phases.py", *arguments, name=f"phases-{name}", options=("--no-windows",))
        yield from _phases(ran.result, ran.said, name, dry=bench.dry)


def windows(bench: Bench) -> Iterator[Row]:
    """Check that kernel windows are present, complete, and early enough."""
    steps = 400 if bench.dry else 4000
    ran = bench.recorded("steps.py", "--layers", 40, "--steps", steps, "--large", 1024, name="windows")
    yield from _window_rows(ran.tables, ran.result)
    # Longer than the 10 s or 20 steps within which the first window is promised.
    micro, steps = (20, 25) if bench.dry else (150, 8)
    words = ("--layers", 160, "--micro", micro, "--steps", steps, "--least", 15)
    slow = bench.recorded("steps.py", *words, name="slow-steps")
    found = slow.tables.windows
    mean = slow.result.whole["steps"]["time_s"]["mean"]
    yield Row(f"windows at accumulated steps of {mean:.1f} s", str(len(found)), ">= 1", len(found) >= 1)


def _phases(result: Result, said: dict[str, float], name: str, *, dry: bool) -> list[Row]:
    step = result.whole["steps"]["time_s"]["mean"]
    wait = max(0.0, 0.005 - (said["forward"] + said["backward"] + said["optimizer"])) if name == "visible" else 0.0
    truth = {
        "forward": said["forward"],
        "backward": said["backward"],
        "optimizer": said["optimizer"],
        "data_wait": wait,
    }
    rows = []
    for phase, seconds in truth.items():
        try:
            measured = result.phase_seconds(phase)
        except Failed as problem:
            rows.append(Row(f"{phase}, data wait {name}", str(problem), "measured", False))
            continue
        off = (measured - seconds) / step
        # Host work between the phases shortens the wait, so its true length is an upper bound.
        passed = -0.2 <= off <= CLOSE if phase == "data_wait" and wait else abs(off) <= CLOSE
        shown = f"{measured * 1e3:.2f} ms of {seconds * 1e3:.2f}; {off:+.1%} of a step of {step * 1e3:.2f} ms"
        rows.append(Row(f"{phase}, data wait {name}", shown, "within 3 % of the step", None if dry else passed))
    return rows


def _window_rows(tables: object, result: Result) -> list[Row]:
    found = [window for window in tables.windows if window.device == "cuda"]
    if not found:
        return [Row("kernel windows", "none", ">= 1", False)]
    first = found[0]
    of_first = [kernel for kernel in tables.kernels if kernel.window == 0 and kernel.device == "cuda"]
    total = sum(kernel.total for kernel in of_first)
    steady = result.metric("step_time_p50")
    late = first.start - min(
        step.start + step.duration for step in tables.steps
    )  # the first step loads CUDA's libraries
    busy = first.busy or 0.0
    return [
        Row("kernel windows", f"{len(found)}, the first after {late:.1f} s", "<= 10 s", late <= 10),
        Row("kernels of the first window", f"{len(of_first)} names, {first.kernels} launches", "> 0", bool(of_first)),
        Row("sum of kernel classes over busy time", f"{total / busy:.3f}" if busy else "busy 0", "0.97 to 1.03",
            bool(busy) and 0.97 <= total / busy <= 1.03),
        Row("window step over steady step", f"{first.duration / first.steps / steady:.2f}"),
        Row("windows with shapes", str(sum(window.shapes for window in found)), ">= 1" if len(found) > 1 else "",
            any(window.shapes for window in found) if len(found) > 1 else None),
    ]  # fmt: skip


def raw_trace(bench: Bench) -> Iterator[Row]:
    """Write one raw trace of torch.profiler, and report on it."""
    trace = bench.runs / "raw.json"
    bench.plain("raw_trace.py", trace)
    if not trace.is_file():
        raise Failed("torch.profiler wrote no trace")
    packed = bench.folder / "trace.json.gz"
    with trace.open("rb") as source, gzip.open(packed, "wb") as target:
        shutil.copyfileobj(source, target)
    trace.unlink()
    report = bench.command("report", "--out", bench.runs / "trace", packed)
    written = Path(bench.runs / "trace" / "result.json").is_file()
    yield Row("report of the raw trace", f"status {report.status}, {packed.stat().st_size} bytes", "a report", written)


def _id(said: dict[str, str]) -> str:
    return said["uuid"].lower().removeprefix("gpu-")
