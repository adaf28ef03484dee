"""Measure what a report on many ranks takes: time, memory, the size of the page, and how fast a browser opens it.

    python benchmarks/scale.py [--ranks 8 64 256 1024] [--steps 100000] [--in FOLDER] [--json FILE]

The runs are made here, eight ranks per node, through the recorder's own store, which merges as in a real run. One node
is written; the others are copies in which every rank has a pace of its own. In the last node, one rank is a straggler,
one GPU is hot and one rank has lost events: a report must name each of them. Each report is made by a new process.
"""

import argparse
import json
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from bars import SCALE_MEMORY, SCALE_OPEN, SCALE_PAGE, SCALE_RANKS, SCALE_SECONDS

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from profiler.quantile_sketch import Quantiles  # noqa: E402
from profiler.schema import (  # noqa: E402 - the checkout's own, even if another is installed
    TAG_CHECKPOINT,
    TAG_FIRST,
    TAG_WINDOW,
    Batch,
    Fact,
    Gpu,
    GpuSample,
    HostSample,
    Kernel,
    MemorySample,
    Problem,
    Process,
    Run,
    Sketch,
    Step,
    Window,
)
from profiler.store import Writer  # noqa: E402

A_NODE = 8
WORKERS = 4
STEP = 0.285
"""Seconds per step; a healthy rank works for 0.236 s of it, the straggler for 0.271 s."""
OWN = {
    "data_wait": 0.004,
    "loader_overhead": 0.003,
    "h2d": 0.002,
    "forward": 0.070,
    "backward": 0.130,
    "optimizer": 0.020,
    "sync": 0.001,
    "gc": 0.001,
    "other": 0.005,
}
STRAGGLES = 1.5
"""Duration of the straggler's forward pass, as a multiple of the others'."""
DRAWS = "return !!document.getElementById('charts') && document.documentElement.dataset.charts !== 'drawn'"
NOTES_THE_DRAWING = """
new MutationObserver(() => { window.drawnAt ??= performance.now(); })
  .observe(document, { subtree: true, attributeFilter: ["data-charts"] });
"""
TIMES = """
const seen = performance.getEntriesByName("first-contentful-paint")[0];
const loaded = performance.getEntriesByType("navigation")[0];
return { seen: seen.startTime, loaded: loaded.loadEventEnd, drawn: window.drawnAt ?? loaded.loadEventEnd };
"""
OPENED = ("seen", "loaded", "drawn")
PATIENCE = 60.0
CHUNK = 250
"""Steps between two commits."""
SAMPLES_A_STEP = 2
"""GPU samples per step; the recorder's ten a second are bounded in the same way, and take longer to make."""


def make(folder, ranks, like, seed=0):
    """Make a run with `ranks` ranks, a multiple of eight, on nodes that are copies of `like`, a recording by `node`."""
    folder.mkdir(parents=True)
    chosen = random.Random(seed)
    for node in range(ranks // A_NODE):
        path = folder / f"run-node{node:04}.db"
        shutil.copyfile(like, path)
        with closing(sqlite3.connect(path)) as connection, connection:
            _becomes(connection, node, ranks, chosen)
            if A_NODE * (node + 1) >= ranks:
                _falls_ill(connection)
    return folder


def ill(ranks):
    """Return the ranks that a report must name: the straggler, the one with the hot GPU, the one with lost events."""
    return ranks - 1, ranks - 2, ranks - 3


def _becomes(connection, node, ranks, chosen):
    """Turn a copy into another node, with each rank a little faster or slower."""
    connection.execute("UPDATE runs SET host = ?, id = ?", (f"node{node:04}", f"run{node}"))
    places = "rank = local_rank + ?, node_rank = ?, world_size = ?"
    connection.execute(f"UPDATE processes SET {places}", (A_NODE * node, node, ranks))
    connection.execute("UPDATE gpus SET uuid = uuid || ?", (f"-{node}",))
    paces = [round(chosen.gauss(1, 0.004), 4) for _ in range(A_NODE)]
    pace = f"CASE pid {' '.join(f'WHEN {_pid(i)} THEN {pace}' for i, pace in enumerate(paces))} END"
    connection.execute(f"UPDATE steps SET forward = forward * {pace}, backward = backward * {pace}")
    _wait_for_the_rest(connection)


def _falls_ill(connection):
    connection.execute(f"UPDATE steps SET forward = forward * {STRAGGLES} WHERE pid = {_pid(A_NODE - 1)}")
    _wait_for_the_rest(connection)
    connection.execute(f"UPDATE gpu_samples SET sm_clock = 1000, throttle = 32 WHERE gpu = {A_NODE - 2}")
    connection.execute(f"UPDATE processes SET events_lost = 1000 WHERE pid = {_pid(A_NODE - 3)}")


def _wait_for_the_rest(connection):
    own = " - ".join(OWN)
    connection.execute(f"UPDATE steps SET communication = duration - {own} WHERE communication IS NOT NULL")


def _pid(local):
    return 1000 + 10 * local


def node(folder, steps, seed=0):
    """Return the recording of a node whose ranks are all healthy."""
    chosen = random.Random(seed)
    writer = Writer(folder, "node")
    writer.add(
        Run(
            id="run",
            command=("torchrun", "train.py"),
            cwd="/",
            host="node",
            started_at=1.7e9,
            duration=STEP * steps + 30.0,
            outcome="completed",
            exit_status=0,
            cores=96.0,
            cores_total=96,
            memory_total=2**40,
            platform="Linux",
            python="3.11",
            version="0.1.0",
            recorder_cpu=60.0,
        )
    )
    for local in range(A_NODE):
        _describe(writer, local, steps)
    quantiles = {name: Quantiles() for name in ("duration", *OWN)}
    for begin in range(0, steps, CHUNK):
        for local in range(A_NODE):
            rows = [_step(local, index, chosen) for index in range(begin, min(begin + CHUNK, steps))]
            writer.add(*rows)
            for name, quantile in quantiles.items():
                quantile.extend(getattr(row, name) for row in rows)
        for index in range(begin, min(begin + CHUNK, steps)):
            _sampled(writer, index, chosen)
        writer.commit()
    for local in range(A_NODE):
        for name, quantile in quantiles.items():
            writer.add(quantile.to_sketch(_pid(local), name))
        for worker in range(WORKERS):
            writer.add(Sketch(pid=_pid(local) + 1 + worker, quantity="batch", zeros=0, bins={1: steps}))
    writer.add(Problem(time=1.0, source="nvml", message="The power limit could not be read."))
    if not writer.close():
        raise OSError("the disk is full")
    return writer.path


def _step(local, index, chosen):
    jitter = chosen.gauss
    own = {name: seconds * max(0.5, jitter(1, 0.02)) for name, seconds in OWN.items()}
    duration = max(STEP * (1 + 0.005 * ((index * 7919) % 13 - 6) / 6), sum(own.values()))
    tags = TAG_FIRST if index == 0 else TAG_CHECKPOINT if index % 5000 == 4999 else 0
    if index % 2000 == 100 + 17 * local:  # every rank opens its windows when its own budget allows
        tags |= TAG_WINDOW
    return Step(
        pid=_pid(local),
        index=index,
        start=20.0 + STEP * index,
        duration=duration,
        tags=tags,
        batches=1.0,
        communication=duration - sum(own.values()),
        evaluation=0.0,
        checkpoint_save=2.0 if tags & TAG_CHECKPOINT else 0.0,
        epoch_start=0.0,
        fetch_host=own["data_wait"] + own["loader_overhead"],
        fetches_empty=0.02,
        queue_depth=6.0,
        host_launch=0.1,
        **own,
    )


def _sampled(writer, index, chosen):
    """Add what is sampled during a step."""
    at = 20.0 + STEP * index
    rows = [HostSample(time=at, cpu=40.0, cpu_workers=12.0, rss=2**38, processes=41, machine_cpu=41.0)]
    for local in range(A_NODE):
        worker = _pid(local) + 1 + index % WORKERS
        cost = chosen.gauss(0.5, 0.05)
        rows.append(Batch(pid=worker, loader=1, start=at, duration=cost, cpu=cost, collate=0.05, samples=32.0))
        rows.append(
            MemorySample(
                time=at,
                pid=_pid(local),
                device=local,
                allocated=2**35,
                allocated_peak=2**36,
                reserved=2**36,
                reserved_peak=2**36,
            )
        )
        for part in range(SAMPLES_A_STEP):
            rows.append(
                GpuSample(
                    time=at + part * STEP / SAMPLES_A_STEP,
                    gpu=local,
                    utilization=chosen.uniform(0.9, 1.0),
                    memory_used=2**36,
                    process_memory=2**36,
                    power=650.0,
                    sm_clock=1900.0,
                    memory_clock=2600.0,
                    throttle=0,
                    temperature=65.0,
                    sm_active=0.8,
                    sm_occupancy=0.4,
                    tensor_active=0.4,
                    dram_active=0.3,
                )
            )
    writer.add(*rows)


def _describe(writer, local, steps):
    pid, ends = _pid(local), 20.0 + STEP * steps
    seen = {"started": 5.0, "ended": ends, "hooks": 1e-6 * steps, "events": 12 * steps}
    about = {"local_rank": local, "world_size": A_NODE, "python": "3.11", "torch": "2.13.0", "cuda": "12.8"}
    writer.add(Process(pid=pid, rank=local, **about, **seen, windows=0.5))
    for worker in range(WORKERS):
        writer.add(Process(pid=pid + 1 + worker, parent=pid, role="worker", worker_id=worker, rank=local, **seen))
    gpu = {"name": "NVIDIA H100 80GB HBM3", "capability": (9, 0), "memory_total": 80 * 2**30}
    writer.add(Gpu(index=local, uuid=f"GPU-{local}", **gpu, sm_clock_max=1980, power_limit=700.0, gpm=True))
    facts = {
        "device": {"id": local, "name": gpu["name"], "capability": [9, 0], "memory_total": gpu["memory_total"]},
        "model": {"id": 1, "name": "Transformer", "parameters": 7 * 10**9, "trainable": 7 * 10**9, "tensors": 291},
        "optimizer": {"id": 1, "name": "AdamW", "fused": True, "tensors": 291, "parameters": 7 * 10**9},
        "loader": {"id": 1, "num_workers": WORKERS, "prefetch_factor": 2, "batch_size": 32, "pin_memory": True},
        "flags": {"autocast": True, "autocast_dtype": "bf16", "ddp": True},
        "memory": {"id": local, "parameters": 2**34, "optimizer": 2**34, "allocated_peak": 2**36},
        "output": {"writes": 100, "seconds": 0.1, "steps": steps},
        "ddp": {"id": 1, "backend": "nccl", "gradient_bytes": 2**34, "steps": steps, "passes": steps, "reduced": steps},
    }
    for kind, body in facts.items():
        writer.add(Fact(pid=pid, time=10.0, kind=kind, body=body))
    for number in range(10):
        at = 20.0 + STEP * steps * number / 10
        writer.add(
            *[
                Window(
                    pid=pid,
                    start=at,
                    steps=3,
                    duration=3 * STEP,
                    cost=0.2,
                    device="cuda",
                    events=9000,
                    busy=0.75,
                    kernels=2400,
                    median_kernel=4e-5,
                    idle_launch=0.01,
                    communication=0.2,
                    communication_exposed=0.1,
                )
            ]
        )
        for kernel in range(100):
            times = {"calls": 30, "total": 0.02 / (1 + kernel)}
            writer.add(
                *[Kernel(pid=pid, window=number, device="cuda", name=f"kernel_{kernel}", kind="matmul", **times)]
            )


def measure(folder):
    """Make a report of the run; return seconds, peak bytes, and the sizes of everything that it wrote."""
    code = (
        "import resource, sys; from advisor.cli import main\n"
        "try: main()\n"
        "finally:\n"
        "    used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "    print(used.ru_utime + used.ru_stime, used.ru_maxrss, file=sys.stderr)"
    )
    out = folder.parent / f"{folder.name}-report"
    begin = time.perf_counter()
    line = [sys.executable, "-c", code, "report", str(folder), "--out", str(out)]
    done = subprocess.run(line, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - begin
    if done.returncode:
        return {"seconds": seconds, "failed": done.stderr[-400:] or f"ended with {done.returncode}"}
    *said, used = done.stderr.splitlines()
    cpu, peak = map(float, used.split())
    return {
        "seconds": seconds,
        "cpu": cpu,
        "memory": 1024 * int(peak),
        "page": (out / "report.html").stat().st_size,
        "markdown": (out / "report.md").stat().st_size,
        "json": (out / "result.json").stat().st_size,
        "lines": len(done.stdout.splitlines()) + len(said),
        **opened(out / "report.html"),
        "words": re.sub(r"<[^>]*>", " ", (out / "report.html").read_text()),
    }


def opened(page):
    """Return the seconds from the start of navigation, by the page's own clock, until something is seen, until all is
    loaded, and until the charts are drawn, in a browser that has shown another page before; empty without a browser."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        return {}
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for option in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(option)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    before = page.with_name("before.html")
    before.write_text("<!doctype html><title>before</title><p>A browser's own start is none of the page's.")
    try:
        browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": NOTES_THE_DRAWING})
        browser.get(before.as_uri())
        browser.get(page.as_uri())
        begin = time.perf_counter()
        while browser.execute_script(DRAWS) and time.perf_counter() - begin < PATIENCE:
            time.sleep(0.01)
        return {name: milliseconds / 1e3 for name, milliseconds in browser.execute_script(TIMES).items()}
    finally:
        browser.quit()
        before.unlink()


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--ranks", type=int, nargs="+", default=[8, 64, 256, SCALE_RANKS])
    options.add_argument("--steps", type=int, default=100_000)
    options.add_argument("--in", type=Path, dest="place", help="Folder for the runs; existing runs are reused.")
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    results, like = {}, None
    with tempfile.TemporaryDirectory() as temporary:
        for ranks in given.ranks:
            folder = (given.place or Path(temporary)) / f"{ranks}-ranks"
            if not folder.exists():
                like = like or node(Path(temporary), given.steps)
                make(folder, ranks, like)
            size = sum(path.stat().st_size for path in folder.iterdir())
            results[ranks] = found = measure(folder)
            print(f"{ranks} ranks, {size / 1e9:.2f} GB", flush=True)
            for line in _lines(found, ranks):
                print(f"  {line}", flush=True)
            if not given.place:
                shutil.rmtree(folder)
    for line in verdicts(results.get(SCALE_RANKS, {})):
        print(line)
    if given.json:
        given.json.write_text(json.dumps(results, indent=2))


def _lines(found, ranks):
    if "failed" in found:
        yield f"no report after {found['seconds']:.1f} s: {found['failed']}"
        return
    yield f"{found['seconds']:7.2f} s ({found['cpu']:.2f} s of CPU)  {found['memory'] / 1e6:7.0f} MB"
    yield (
        f"report.html {found['page'] / 1e6:.2f} MB, report.md {found['markdown'] / 1e3:.0f} kB, "
        f"result.json {found['json'] / 1e3:.0f} kB, {found['lines']} lines in the terminal"
    )
    if "loaded" in found:
        yield "opened: " + ", ".join(f"{name} after {found[name]:.2f} s" for name in OPENED)
    words = found.pop("words")
    named = [number for number in ill(ranks) if re.search(rf"\b(rank|GPU) {number}\b", words)]
    yield f"named: {len(named)} of {len(ill(ranks))} faulty ranks or GPUs"


def verdicts(found):
    """Yield each bar, and whether it is met."""
    bars = (("seconds", "s", SCALE_SECONDS), ("memory", "B", SCALE_MEMORY), ("page", "B", SCALE_PAGE))
    for what, unit, bar in (*bars, *((name, "s", SCALE_OPEN) for name in OPENED)):
        if found.get(what) is not None:
            met = "ok   " if found[what] <= bar else "ABOVE"
            yield f"{met} {SCALE_RANKS} ranks: {what} {found[what]:.3g} {unit} (bar {bar:g})"


if __name__ == "__main__":
    main()
