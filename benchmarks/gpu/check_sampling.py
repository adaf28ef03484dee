"""Measure what sampling the GPU costs: NVML's calls, the recorder's CPU time, and the program's step time."""

from __future__ import annotations

from collections.abc import Iterator

from acceptance import Bench
from table import Row


def sampling(bench: Bench) -> Iterator[Row]:
    """Time NVML's calls; compare steps at three rates of sampling."""
    for name, times in bench.plain("nvml_calls.py").said["calls"].items():
        shown = times.get("refused") or f"p50 {times['p50']:.0f} us, p99 {times['p99']:.0f} us"
        yield Row(f"NVML {name}", shown)
    paces = {}
    for rate in (0.1, 1, 10):
        steps = 300 if bench.dry else 800
        ran = bench.recorded(
            "steps.py",
            "--layers",
            40,
            "--steps",
            steps,
            name=f"rate-{rate}",
            options=("--no-windows", "--rate", str(rate)),
        )
        paces[rate] = ran.said["paces"][0]
        run = ran.result.whole
        cpu, duration = run["overhead"]["recorder_cpu_s"], run["run"]["duration_s"]
        measured = f"{paces[rate] * 1e3:.3f} ms a step, recorder {cpu / duration:.1%} of a core"
        within = None if bench.dry or rate != 10 else paces[10] / paces[0.1] <= 1.02
        yield Row(f"sampling {rate} times a second", measured, "<= 2 % over 0.1" if rate == 10 else "", within)
