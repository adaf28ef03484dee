"""Measure what stack sampling costs per step: the recorder's own sampler watches a running loop in every second block.

The blocks are from one process: two processes of one program differ by more than sampling costs."""

import contextlib
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import checkout  # noqa: F401
import ways
from program import Program
from rows import row
from steps import COLD, LONGEST, there_and_back

from profiler.recorder.stacks.sampler import StackSampler

PREPARES = 0.3
"""Seconds that py-spy needs to start; a block without it waits as long."""


def ratios(loop, pairs, folder):
    """Return sampled / plain - 1 of the median and of the mean step, one value per pair of blocks."""
    program = Program(ways.plain(), loop, folder / "sampled", loop.steps, LONGEST)
    program.wait_turn()
    order = [sampled for pair in range(pairs + 1) for sampled in there_and_back([False, True], pair)]
    for sampled in order:
        with _sampler(program.pid) if sampled else contextlib.nullcontext():
            time.sleep(PREPARES)
            program.block()
    blocks = list(zip(order, program.finish()["blocks"], strict=True))[2:]  # the first pair warms up
    plain, treated = ([each["walls"][COLD:] for sampled, each in blocks if sampled is kind] for kind in (False, True))
    return {
        what: [of(b) / of(a) - 1 for a, b in zip(plain, treated, strict=True)]
        for what, of in (("median", statistics.median), ("mean", statistics.fmean))
    }


@contextlib.contextmanager
def _sampler(pid):
    """Run the sampler as the recorder starts it, at its first and highest rate."""

    def refused(_, why):
        raise SystemExit(why)

    with TemporaryDirectory() as folder:
        sampler = StackSampler(Path(folder), time.monotonic, refused)
        sampler.poll([pid], lambda _: [])
        try:
            yield
        finally:
            sampler.close()


def rows_of(loop, case, found):
    """Yield the table's rows from all processes."""
    for what in ("median", "mean"):
        yield row("stacks", case, f"step, {what}", [each[what] for each in found], "%", loop.share)
