"""Check that a recording stays small in long runs, and survives being killed at any moment.

    python benchmarks/endurance.py growth            200,000 steps of three programs; about fifteen minutes
    python benchmarks/endurance.py growth --only "8 workers"
    python benchmarks/endurance.py kills             50 SIGKILLs of program, recorder and workers; about ten minutes
    python benchmarks/endurance.py kills --runs 9 --seed 3

growth: memory and descriptors of program and recorder, and the size of the store, in the last tenth of the steps
compared with the third tenth; the bar is 5 %. Two samples a second are taken: the default rate adds 1 kB a second
until 10,000 are kept, which takes longer than these runs. kills: steps that the program announced before the kill and
that the report lacks. Events of hooks wait for at most 20 ms, so the bar is the steps of 20 ms plus the one in
progress. The exit status is 1 if a bar was missed.
"""

import argparse
import os
import random
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import checkout
import psutil

from profiler.store import find, read

PROGRAM = """
import os, sys, time
import torch
from torch.utils.data import DataLoader, TensorDataset

steps, pause, optimizes, workers = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "yes", int(sys.argv[4])
announced = os.open(sys.argv[5], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01) if optimizes else None
rows = TensorDataset(torch.randn(2000 if workers else 40000, 4))
done = 0
while done < steps:
    for (x,) in DataLoader(rows, batch_size=2, num_workers=workers):
        with torch.set_grad_enabled(optimizes):
            loss = model(x).square().mean()
        if optimizes:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        os.write(announced, b".")
        time.sleep(pause) if pause else None
        done += 1
        if done == steps:
            break
"""
GROWING = {"with optimizer": ("yes", 0), "forward only": ("no", 0), "8 workers": ("yes", 8)}
"""Per program: whether it optimizes, and its loader's workers, which are started again every 1,000 steps."""
FLAT = 0.05
LATE = 0.020
"""Most seconds for which events wait in the training process."""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("growth", "kills"))
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--only", choices=GROWING)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        program = Path(scratch) / "train.py"
        program.write_text(PROGRAM)
        return growth(program, args.steps, args.only) if args.what == "growth" else kills(program, args.runs, args.seed)


def growth(program, steps, only):
    """Print how much each program and its recording grow; `only` selects one program."""
    missed = 0
    for name, (optimizes, workers) in GROWING.items():
        if only not in (None, name):
            continue
        folder, announced = program.parent / f"growth-{workers}-{optimizes}", program.parent / f"{workers}-{optimizes}"
        recorder = _start(folder, program, steps, 0, optimizes, workers, announced, rate=2)
        readings = []
        while recorder.poll() is None:
            time.sleep(0.25)
            training = _training(recorder.pid, program)
            done = announced.stat().st_size / steps if announced.is_file() else 0.0
            if training and done < 1 and (reading := _reading(recorder.pid, training, folder)):
                readings.append((done, reading))
        early = [reading for done, reading in readings if 0.2 <= done < 0.3]
        late = [reading for done, reading in readings if done >= 0.9]
        if not early or not late:
            print(f"{name:16} too few readings: take more --steps")
            missed += 1
            continue
        for key in early[0]:
            before, after = (statistics.median(reading[key] for reading in part) for part in (early, late))
            grown = after / before - 1 if before else 0.0
            missed += grown > FLAT
            verdict = "ok" if grown <= FLAT else "ABOVE"
            print(f"{name:16} {key:28} {before:14,.0f} {after:14,.0f} {grown:+7.1%} {verdict}", flush=True)
    return bool(missed)


def kills(program, runs, seed):
    """Print for each kill how many announced steps the recording lacks."""
    chance, missed, pause = random.Random(seed), 0, 0.004
    for number in range(runs):
        victim = ("program", "recorder", "worker")[number % 3]
        folder, announced = program.parent / f"kill-{number}", program.parent / f"announced-{number}"
        recorder = _start(folder, program, 1500, pause, "yes", 2 if victim == "worker" else 0, announced)
        _wait_for(announced, 20)
        time.sleep(chance.uniform(0, 5))
        training = _training(recorder.pid, program)
        if training is None:
            print(f"{victim:9} had ended before the kill")
            continue
        target = {"program": training, "recorder": psutil.Process(recorder.pid)}.get(victim)
        target = target or next(iter(training.children()), training)
        target.kill()
        before = announced.stat().st_size
        psutil.wait_procs([training], timeout=120)
        recorder.wait()
        done = announced.stat().st_size
        found = _steps_found(folder)
        lost, most = (before if victim == "program" else done) - found, int(LATE / pause) + 1
        missed += lost > most
        print(
            f"{victim:9} announced {done:5}, recorded {found:5}, lost {lost:3} {'ok' if lost <= most else 'LOST'}",
            flush=True,
        )
    print(f"{missed} of {runs} above the bar")
    return bool(missed)


def _start(folder, program, *arguments, rate=10):
    options = ["--no-report", "--no-windows", "--rate", rate, "--out", folder]
    words = [*checkout.COMMAND, *options, program, *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        list(map(str, words)), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def _training(recorder, program):
    """Return the training process, or None if it has not started."""
    for process in psutil.Process(recorder).children():
        try:
            if str(program) in process.cmdline() and "--out" not in process.cmdline():
                return process
        except psutil.Error:
            continue
    return None


def _reading(recorder, training, folder):
    beside = psutil.Process(recorder)
    try:
        return {
            "memory of the program": training.memory_info().rss,
            "descriptors of the program": training.num_fds(),
            "memory of the recorder": beside.memory_info().rss,
            "descriptors of the recorder": beside.num_fds(),
            "store": sum(path.stat().st_size for path in folder.glob("*.db*")),
        }
    except (psutil.Error, OSError):
        return None


def _steps_found(folder):
    """Return how many steps are recorded, once `profile-train report` has read what a killed recorder left."""
    subprocess.run([*checkout.COMMAND, "report", "--no-summary", str(folder)], check=False, capture_output=True)
    return sum(step.count for path in find(folder) for step in read(path).steps)


def _wait_for(file, size, seconds=120):
    end = time.monotonic() + seconds
    while not (file.is_file() and file.stat().st_size > size) and time.monotonic() < end:
        time.sleep(0.05)


if __name__ == "__main__":
    raise SystemExit(main())
