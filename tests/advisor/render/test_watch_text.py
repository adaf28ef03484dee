"""The screen, at every size."""

import re
from dataclasses import replace

import pytest
from profiles import RUN, metrics, rank, steps

from advisor.judge import Gain
from advisor.render.watch_text import draw, sparkline
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


def test_80_by_24_holds_everything():
    shown = lines(seen(advice=replace(ADVICE, gain=Gain(0.4, 0.5, 0.6))))
    text = "\n".join(shown)

    assert shown[0].startswith("running 30 s  train.py --lr 3e-4")
    assert shown[1] == "300 steps, 100 ms each"
    assert re.search(r"Steps +10 a second +▁?█{29}", text)
    assert re.search(r"Waiting for data +60 ms +60%  █{14}\n", text)
    assert text.index("Waiting for data") < text.index("Forward") < text.index("Garbage collection")
    assert re.search(r"GPU 0 +98% +[▁▂▃▄▅▆▇█]{30}", text)
    assert re.search(r"  memory +8 GiB of 80 GiB +▂", text)
    assert re.search(r"CPU +2 of 8 cores +▃", text)
    assert "Advice  Load the data in worker processes: 40 to 60% less step time" in text
    assert "[data-workers-zero] Give the loader 5 workers." in text
    assert shown[-1] == "Ctrl-C ends the watching, not the run (run)"


@pytest.mark.parametrize("gpus", [0, 1, 8])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 24), (20, 10), (200, 60), (80, 5), (1, 1)])
def test_it_fits_whatever_room_there_is(width, height, gpus):
    shown = lines(seen(gpus), width, height)

    assert len(shown) <= height
    assert max(map(len, shown), default=0) <= width


def test_phases_and_gpus_share_the_room():
    text = "\n".join(lines(seen(gpus=8)))

    assert "Waiting for data" in text
    assert "GPU 0" in text
    assert "Advice" in text


def test_an_ascii_terminal_gets_ascii():
    assert draw(seen(), 80, 24, ascii_only=True).plain.isascii()


def test_what_was_not_measured_is_blank_and_not_nothing():
    assert sparkline((None, 0.0, 0.5, 1.0), 1.0, 4) == " ▁▅█"
    assert sparkline((0.0, 0.0), None, 2) == "▁▁"
    assert sparkline((1.0, 0.5), 1.0, 1) == "▅"
    assert sparkline((1.0,), 1.0, 0) == ""


def test_a_run_that_is_over_says_how_and_where_to_read_on():
    shown = lines(seen(outcome="failed"))

    assert shown[0].startswith("failed 30 s")
    assert shown[-1] == "Report: profile-train report run"


def test_text_from_outside_is_only_text():
    text = draw(seen(command=("\x1b[31mx", "[bold]y"), advice=replace(ADVICE, title="\x1b[2J")), 80, 24)

    assert "\x1b" not in text.plain
    assert "[bold]y" in text.plain
