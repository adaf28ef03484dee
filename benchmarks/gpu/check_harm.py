"""Check that recording does not change or slow programs: captures, leaks, cost, compiled code, a framework's loop."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator

from acceptance import Bench, Ran
from table import Row

MEBIBYTE = 2**20
WINDOWS_OFF = ("--no-windows", "--no-report")


def graph(bench: Bench) -> list[Row]:
    """Compare a whole-step graph capture plain and recorded."""
    return _alike(bench, "whole-step graph capture", "graph_step.py", "graph")[0]


def forwards(bench: Bench) -> list[Row]:
    """Run many forward passes without an optimizer: memory must stay flat."""
    count = 20_000 if bench.dry else 200_000
    said = bench.recorded("forwards.py", "--forwards", count, name="forwards", options=WINDOWS_OFF).said
    return [
        Row(
            f"{count} forwards without an optimizer: growth of {what}",
            f"{said[key] / MEBIBYTE:.1f} MiB",
            f"<= {most} MiB",
            said[key] <= most * MEBIBYTE,
        )
        for what, key, most in (("host memory", "resident_growth", 8), ("GPU memory", "gpu_growth", 8))
    ]


def cost(bench: Bench) -> Iterator[Row]:
    """Run steps of about 2, 5 and 20 ms plain and recorded, in turns; then with windows, to see what they leave."""
    seconds = 1.0 if bench.dry else 2.5
    plain, recorded = [], []
    for turn in range(2):
        plain.append(bench.plain("steps.py", "--seconds", seconds).said)
        recorded.append(bench.recorded("steps.py", "--seconds", seconds, name=f"cost-{turn}", options=WINDOWS_OFF).said)
    for number, pace in enumerate(plain[0]["paces"]):
        before = statistics.mean(said["paces"][number] for said in plain)
        after = statistics.mean(said["paces"][number] for said in recorded)
        noise = abs(plain[0]["paces"][number] - plain[1]["paces"][number]) / before
        added = after / before - 1
        title = f"cost of marks at steps of {pace * 1e3:.1f} ms"
        measured = f"{(after - before) * 1e6:+.0f} us a step, {added:+.1%} (plain runs differ by {noise:.1%})"
        yield Row(title, measured, "<= 2 % beyond noise", None if bench.dry else added <= 0.02 + noise)
    yield _equal_losses("losses of these steps", plain[0]["losses"], recorded[0]["losses"])
    for teardown in ("", "1"):
        yield _after_a_window(bench, teardown, plain[0]["gpu_used"])


def compiled(bench: Bench) -> list[Row]:
    """Record CUDA graphs made by torch.compile over several windows."""
    rows, ran = _alike(bench, 'mode="reduce-overhead"', "compiled.py", "compiled", "--budget", "0.5")
    if ran is None:
        return rows
    windows = len(ran.tables.windows)
    return [
        *rows,
        Row("windows while CUDA graphs are replayed", str(windows), ">= 2", None if bench.dry else windows >= 2),
    ]


def trainer(bench: Bench) -> list[Row]:
    """Compare a tiny GPT under transformers' Trainer, plain and recorded."""
    rows, ran = _alike(bench, "transformers Trainer, bf16", "trainer.py", "trainer")
    if ran is None:
        return rows
    return [*rows, Row("its verdict", ", ".join(ran.result.advice()) or "no advice")]


def _after_a_window(bench: Bench, teardown: str, plain_used: int) -> Row:
    """Compare steps before and after the first window: CUPTI may stay subscribed and slow each launch."""
    name = f"teardown-{teardown or 'unset'}"
    environment = {"TEARDOWN_CUPTI": teardown} if teardown else {}
    arguments = ("--layers", 40, "--steps", 600 if bench.dry else 3000)
    ran = bench.recorded("steps.py", *arguments, name=name, options=("--no-report",), **environment)
    windows, said = ran.tables.windows, ran.said
    title = f"steps after the first window, TEARDOWN_CUPTI {teardown or 'unset'}"
    if not windows:
        return Row(title, "no window was recorded", "a window", False)
    run = ran.tables.runs[0]
    begin, end = run.started_at + windows[0].start, run.started_at + windows[0].start + windows[0].duration
    ends = said["ends"][0]
    lengths = [(stop, stop - start) for start, stop in itertools.pairwise(ends)]
    before = [length for stop, length in lengths[20:] if stop < begin - 0.2]
    after = [length for stop, length in lengths if stop > end + 1.0]
    if len(before) < 20 or len(after) < 20:
        return Row(title, f"{len(before)} steps before, {len(after)} after: too few", "measured", None)
    change = statistics.median(after) / statistics.median(before) - 1
    used = (said["gpu_used"] - plain_used) / MEBIBYTE
    return Row(title, f"{change:+.1%}; GPU memory {used:+.0f} MiB", "<= 2 %", None if bench.dry else change <= 0.02)


def _alike(bench: Bench, item: str, program: str, name: str, *options: str) -> tuple[list[Row], Ran | None]:
    """Run a program plain and recorded; return the comparison, and the recording unless the plain run failed."""
    plain = bench.plain(program)
    if plain.status != 0:
        return [Row(item, f"the plain run ended with {plain.status}: {plain.err.strip()[-200:]}")], None
    recorded = bench.recorded(program, name=name, options=options)
    if recorded.status != 0:
        failed = f"status {recorded.status}: {recorded.err.strip()[-200:]}"
        return [Row(item, failed, "as without recording", False)], recorded
    return [_equal_losses(item, plain.said["losses"], recorded.said["losses"])], recorded


def _equal_losses(item: str, plain: list[str], recorded: list[str]) -> Row:
    differ = sum(one != other for one, other in zip(plain, recorded, strict=True))
    return Row(item, f"{differ} of {len(plain)} losses differ, status 0", "bit for bit", differ == 0)
