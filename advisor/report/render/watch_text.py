"""Draw a live run on a terminal of any size, with as many lines as fit."""

import shlex
import textwrap
from collections.abc import Sequence
from pathlib import PurePath

from rich.text import Text

from advisor.report.render.view import ENDINGS
from advisor.report.report import LABELS
from advisor.report.wording import gain_text
from advisor.units import count, digits, seconds, share, size
from advisor.watch.snapshot import Curve, Gauge, GpuNow, Snapshot, StepsNow
from profiler.printable import printable

BLOCKS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
ASCII = "_.:-=+*#"

NAME = 22
VALUE = 26
LONGEST_BAR = 24

NOTICEABLE = 0.005
"""Share of a step below which a phase has no line."""

SILENT = 10.0
"""Seconds without a step after which that is mentioned, if steps are shorter."""

WAITS = ("data_wait", "loader_overhead", "h2d", "communication", "sync", "gc")


def draw(seen: Snapshot, width: int, height: int, *, ascii_only: bool = False, note: str = "") -> Text:
    """Return the view with no line wider than `width`, and at most `height` lines.

    Phases are dropped first, then GPUs.
    """
    marks = ASCII if ascii_only else BLOCKS
    head = [_title(seen), *_steps(seen.steps, width, marks), Text()]
    host = [_gauge("CPU", seen.cpu, _cores(seen.cpu), width, marks)]
    host.append(_gauge("Host memory", seen.memory, _bytes(seen.memory), width, marks))
    foot = [*_lines(seen), Text(), *_advice(seen, width), Text(), _footer(seen, note)]
    room = max(0, height - len(head) - len(host) - len(foot))
    gpus = [line for gpu in seen.gpus for line in _gpu(gpu, width, marks)]
    phases = _phases(seen.steps, marks)
    least = min(len(phases), 4)
    gpus = gpus[: max(0, room - least)]
    phases = phases[: max(0, room - len(gpus) - 1)]
    lines = [*head, *phases, *([Text()] if phases else []), *gpus, *host, *foot][:height]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Text("\n", no_wrap=True).join(lines)


def _title(seen: Snapshot) -> Text:
    state = "running" if not seen.is_over else ENDINGS[seen.ended]
    ranks = f", {seen.ranks} ranks" if seen.ranks > 1 else ""
    style = "green" if seen.ended in ("running", "completed") else "red"
    return Text.assemble(
        (state, f"bold {style}"),
        f" {seconds(seen.time)}{ranks}  ",
        (printable(shlex.join(seen.command)), "bold"),
    )


def _steps(steps: StepsNow | None, width: int, marks: str) -> list[Text]:
    if steps is None:
        return [Text("No training step yet.")]
    parts = [count(steps.count, "step")]
    if steps.mean is not None:
        parts.append(f"{seconds(steps.mean)} each")
    if steps.between:
        parts.append(f"and {seconds(steps.between)} between them")
    if steps.silent > max(SILENT, 3 * (steps.mean or 0.0)):
        parts.append(f"the last {seconds(round(steps.silent))} ago")
    rate = "no recent step" if steps.rate is None else f"{digits(steps.rate)} a second"
    top = max((value for value in steps.rates if value is not None), default=None)
    return [Text(", ".join(parts)), _gauge("Steps", Gauge(steps.rate, top, steps.rates), rate, width, marks)]


def _phases(steps: StepsNow | None, marks: str) -> list[Text]:
    """Return the lines of the phases, largest first."""
    if steps is None or not steps.mean:
        return []
    rows = [(name, value / steps.mean, value) for name, value in steps.phases.items() if value is not None]
    return [
        Text.assemble(
            f"{LABELS[name][0]:<{NAME}}{seconds(value):>9}{share(part):>7}  ",
            (marks[-1] * round(LONGEST_BAR * part), "yellow" if name in WAITS else "cyan"),
        )
        for name, part, value in sorted(rows, key=lambda row: -row[1])
        if part >= NOTICEABLE
    ]


def _gpu(gpu: GpuNow, width: int, marks: str) -> list[Text]:
    utilization = "not measured" if gpu.utilization.now is None else share(gpu.utilization.now)
    return [
        _gauge(f"GPU {gpu.index}", gpu.utilization, utilization, width, marks),
        _gauge("  memory", gpu.memory, _bytes(gpu.memory), width, marks),
    ]


def _cores(gauge: Gauge) -> str:
    return "not measured" if gauge.now is None else f"{digits(gauge.now)} of {digits(gauge.of or 0)} cores"


def _bytes(gauge: Gauge) -> str:
    if gauge.now is None:
        return "not measured"
    return size(gauge.now) + (f" of {size(gauge.of)}" if gauge.of else "")


def _gauge(name: str, gauge: Gauge, value: str, width: int, marks: str) -> Text:
    room = max(0, width - NAME - VALUE)
    line = sparkline(gauge.curve, gauge.of, room, marks)
    return Text.assemble(f"{printable(name):<{NAME}}{value:<{VALUE}}", (line, "cyan"))


def sparkline(curve: Curve, top: float | None, width: int, marks: str = BLOCKS) -> str:
    """Return the newest `width` seconds of a curve; a blank means not measured, which is not zero."""
    points = curve[-width:] if width else ()
    highest = top or max((value for value in points if value is not None), default=0.0)
    return "".join(" " if value is None else _mark(value, highest, marks) for value in points)


def _mark(value: float, highest: float, marks: str) -> str:
    part = value / highest if highest > 0 else 0.0
    return marks[max(0, min(len(marks) - 1, round(part * (len(marks) - 1))))]


def _lines(seen: Snapshot) -> list[Text]:
    """Return the hottest line of the newest stacks."""
    if not seen.lines:
        return []
    line = seen.lines[0]
    where = f"{line.name} in {PurePath(line.file).name}:{line.line}"
    return [Text.assemble(f"{'Hottest line':<{NAME}}", printable(f"{share(line.share)} {where}"))]


def _advice(seen: Snapshot, width: int) -> list[Text]:
    """Return the advice in three lines at most."""
    if seen.advice is None:
        return [Text("No advice so far." if seen.steps else "", style="dim")]
    gain = f": {gain_text(seen.advice.gain)}" if seen.advice.gain else ""
    title = Text.assemble(("Advice  ", "bold"), (printable(f"{seen.advice.title}{gain}"), "bold yellow"))
    return [title, *_folded(printable(f"[{seen.advice.rule}] {seen.advice.then}"), width)]


def _folded(text: str, width: int) -> Sequence[Text]:
    lines = textwrap.wrap(text, max(20, width - 8), max_lines=2, placeholder=" ...")
    return [Text(f"{'':8}{line}") for line in lines]


def _footer(seen: Snapshot, note: str) -> Text:
    if note:
        return Text(printable(note), style="yellow")
    if seen.is_over:
        return Text(printable(f"Report: profile-train report {seen.folder}"), style="dim")
    return Text(printable(f"Ctrl-C stops watching; the run continues ({seen.folder})"), style="dim")
