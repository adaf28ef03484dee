"""The screen, at every size."""

from dataclasses import replace

import pytest
from profiles import RUN, metrics, rank, steps
from snapshots import same, scenes

from advisor.judging.judge import Estimate
from advisor.report.render.watch_text import draw, sparkline
from advisor.watch.snapshot import Advised, snapshot
from profiler.schema import Gpu, GpuSample, HostSample

ADVICE = Advised("data-workers-zero", "Load the data in worker processes", "Give the loader 5 workers. " * 9, None)


def seen(gpus=1, advice=ADVICE, **run):
    made = steps(*[0.1] * 300, data_wait=0.06, forward=0.02, backward=0.01, optimizer=0.005, gc=0.002, other=0.003)
    profile = metrics(
        rank(steps=made),
        runs=(replace(RUN, **{"outcome": "running", "command": ("train.py", "--lr", "3e-4"), **run}),),
        host_samples=tuple(HostSample(time=t / 2, cpu=2.0, rss=1 << 30) for t in range(60)),
        gpus=tuple(Gpu(index=i, uuid=str(i), name="H100", memory_total=80 << 30) for i in range(gpus)),
        gpu_samples=tuple(
            GpuSample(time=t / 2, gpu=i, utilization=t / 60, memory_used=8 << 30)
            for t in range(60)
            for i in range(gpus)
        ),
    ).profile
    return snapshot(profile, "run", advice)


def lines(shown, width=80, height=24, **how):
    return draw(shown, width, height, **how).plain.splitlines()


def test_snapshot_of_the_screen():
    screens = {
        "running": seen(advice=replace(ADVICE, gain=Estimate(0.4, 0.5, 0.6))),
        "8 GPUs": seen(gpus=8),
        "failed": seen(outcome="failed"),
    }
    same("watch.txt", scenes({name: "\n".join(lines(shown)) for name, shown in screens.items()}))


@pytest.mark.parametrize("gpus", [0, 1, 8])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 24), (20, 10), (200, 60), (80, 5), (1, 1)])
def test_screen_fits_any_terminal_size(width, height, gpus):
    shown = lines(seen(gpus), width, height)

    assert len(shown) <= height
    assert max(map(len, shown), default=0) <= width


def test_an_ascii_terminal_gets_ascii():
    assert draw(seen(), 80, 24, ascii_only=True).plain.isascii()


def test_unmeasured_values_are_blank_rather_than_zero():
    assert sparkline((None, 0.0, 0.5, 1.0), 1.0, 4) == " ▁▅█"
    assert sparkline((0.0, 0.0), None, 2) == "▁▁"
    assert sparkline((1.0, 0.5), 1.0, 1) == "▅"
    assert sparkline((1.0,), 1.0, 0) == ""


def test_untrusted_text_is_printed_as_text():
    text = draw(seen(command=("\x1b[31mx", "[bold]y"), advice=replace(ADVICE, title="\x1b[2J")), 80, 24)

    assert "\x1b" not in text.plain
    assert "[bold]y" in text.plain
