"""What profile-train costs the program it watches.

    python benchmarks/overhead.py                some ten minutes
    python benchmarks/overhead.py --quick        a minute or two; too short to judge the small bars
    python benchmarks/overhead.py --aa           the plain run against itself: how noisy this machine is
    python benchmarks/overhead.py --peer PYTHON  beside traceml-ai, installed in the venv of this interpreter

A step: a plain and a treated process of the same loop live side by side and take turns of a quarter of a second each
(A B, B A, A B, ...), so that whatever else the machine does falls on both. Each pair of neighbouring turns gives the
ratio of their median steps; the table shows the median over all pairs. Start, end and total CPU time come from whole
runs, one after the other, in changing order. Intervals are 95 % bootstrap intervals of the median; the pairs of two
processes are drawn together with them, since processes of one program also differ by where their memory happens to
lie. A bar is `ok` or `above` if the whole interval is on that side of it, else `unclear`: take more --rounds, or a
quieter machine.
"""

import argparse
import json
import os
import random
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIMIT = 120  # seconds that anything here may take before it counts as hung
START_BAR = 0.1  # seconds until the script's first line


@dataclass(frozen=True)
class Loop:
    name: str
    width: int
    batch: int
    steps: int
    """In a turn: a quarter of a second."""
    bar: float
    """Share of the median step that may be lost; the shorter the step, the looser."""


LOOPS = (
    Loop("1 ms", 330, 16, 220, 0.02),
    Loop("10 ms", 980, 16, 24, 0.005),
    Loop("50 ms", 1900, 48, 6, 0.003),
)
COLD = 2  # first steps of a turn, in which the caches still hold the other process


@dataclass(frozen=True)
class Way:
    """How to run the loop: the words before the script, between it and its arguments, and after these."""

    name: str
    before: Callable[[Path], Sequence[object]]
    between: Sequence[str] = ()
    after: Sequence[str] = ()


class Program:
    """One process of the loop."""

    def __init__(self, way, loop, blocks, folder, turns=False):
        self.folder = folder
        folder.mkdir()
        self.result = folder / "result.json"
        sizes = ["--width", loop.width, "--batch", loop.batch, "--steps", loop.steps, "--blocks", blocks]
        if turns:
            pipes = folder / "go", folder / "done"
            for pipe in pipes:
                os.mkfifo(pipe)
            self.go, self.done = (os.open(pipe, os.O_RDWR) for pipe in pipes)
            sizes += ["--turns", folder]
        line = [*way.before(folder), HERE / "loop.py", *way.between, *sizes, *way.after, self.result]
        self.line = [str(word) for word in line]
        self.output = (folder / "output").open("wb")
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            self.line, cwd=folder, stdin=subprocess.DEVNULL, stdout=self.output, stderr=subprocess.STDOUT
        )

    def wait_turn(self):
        """Wait until the program has come to the end of its block, or to its first."""
        if not select.select([self.done], [], [], LIMIT)[0]:
            self.fail("did not come to the end of its block")
        os.read(self.done, 1)

    def block(self):
        os.write(self.go, b".")
        self.wait_turn()

    def finish(self):
        """Wait for its end; what it measured, with the CPU seconds and the end of the whole command."""
        deadline = time.monotonic() + LIMIT
        while True:
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                self.fail("did not end")
            time.sleep(0.002)
        ended = time.monotonic()
        self.process.returncode = os.waitstatus_to_exitcode(status)
        if self.process.returncode or not self.result.exists():
            self.fail(f"ended with {self.process.returncode}")
        measured = json.loads(self.result.read_text())
        measured["cpu"] = usage.ru_utime + usage.ru_stime
        measured["to_first_line"] = measured["first_line"] - self.started
        measured["import"] = measured["imported"] - measured["first_line"]
        measured["end"] = ended - measured["loop_end"]
        self.close()
        return measured

    def fail(self, how):
        self.process.kill()
        said = (self.folder / "output").read_text(errors="replace")[-2000:]
        raise SystemExit(f"{' '.join(self.line)}\n{how}:\n{said}")

    def close(self):
        self.output.close()
        if hasattr(self, "go"):
            os.close(self.go)
            os.close(self.done)
        shutil.rmtree(self.folder)


def ways(args):
    """The treated ways."""
    if args.aa:
        treated = [Way("plain again", PLAIN.before)]
    else:
        treated = [Way("profile-train", lambda folder: [*profile_train(), "--out", folder / "run"])]
    if args.peer:
        traceml = Path(os.path.abspath(args.peer)).with_name("traceml")  # not resolved: a venv's python is a link
        run = [traceml, "run", "--logs-dir"]
        treated.append(Way("traceml-ai", lambda folder: [*run, folder / "logs"], ["--args"], ["--traceml"]))
    return treated


PLAIN = Way("plain", lambda folder: [sys.executable])


def profile_train():
    """The installed command, or this checkout's."""
    script = Path(sys.executable).with_name("profile-train")
    if script.exists():
        return [script]
    code = f"import sys; sys.path[:0] = [{str(HERE.parent)!r}]; from advisor.cli import main; raise SystemExit(main())"
    return [sys.executable, "-c", code]


def there_and_back(items, number):
    """A B, then B A, and so on."""
    return items if number % 2 == 0 else items[::-1]


def step_pairs(way, loop, blocks, number, folder):
    """[(wall ratio, CPU ratio)] of one pair of processes, block by block; the first block warms up."""
    programs = {}
    for each in there_and_back([PLAIN, way], number):
        programs[each.name] = Program(each, loop, blocks, folder / each.name, turns=True)
        programs[each.name].wait_turn()
    for block in range(blocks):
        for each in there_and_back(list(programs.values()), block):
            each.block()
    plain, treated = programs[PLAIN.name].finish(), programs[way.name].finish()
    pairs = list(zip(plain["blocks"], treated["blocks"], strict=True))[1:]
    walls = [(statistics.median(a["walls"][COLD:]), statistics.median(b["walls"][COLD:])) for a, b in pairs]
    return {
        "step": [a for a, _ in walls],
        "wall": [b / a - 1 for a, b in walls],
        "cpu": [b["cpu"] / a["cpu"] - 1 for a, b in pairs],
    }


def whole_pair(way, loop, blocks, number, folder):
    """Treated less plain of two whole runs: seconds to the first line, importing torch and ending; share of CPU."""
    runs = {}
    for each in there_and_back([PLAIN, way], number):
        runs[each.name] = Program(each, loop, blocks, folder / each.name).finish()
    plain, treated = runs[PLAIN.name], runs[way.name]
    seconds = {key: [treated[key] - plain[key]] for key in ("to_first_line", "import", "end")}
    return {**seconds, "total_cpu": [treated["cpu"] / plain["cpu"] - 1]}


def interval(groups, draws=2000):
    """(median, low, high) of all values; groups are drawn first, then values within each."""
    chance = random.Random(0)
    medians = []
    for _ in range(draws):
        drawn = chance.choices(groups, k=len(groups))
        medians.append(statistics.median(v for group in drawn for v in chance.choices(group, k=len(group))))
    medians.sort()
    middle = statistics.median(value for group in groups for value in group)
    return middle, medians[int(draws * 0.025)], medians[int(draws * 0.975)]


def event_cost(count=200_000):
    """Seconds for one event: two reads of the clock and the record; the best of seven."""
    sys.path.insert(0, str(HERE.parent))
    from profiler.agent.ring import FETCH, Writer

    clock, thread = time.perf_counter_ns, threading.get_ident()
    best = float("inf")
    with tempfile.TemporaryDirectory() as folder:
        write = Writer(str(Path(folder) / "ring"), 1 << 14).write
        for _ in range(7):
            start = time.perf_counter()
            for _ in range(count):
                write(thread, FETCH, clock(), clock(), 1, 2)
            best = min(best, (time.perf_counter() - start) / count)
    return best


@dataclass(frozen=True)
class Row:
    way: str
    what: str
    unit: str
    median: float
    low: float
    high: float
    bar: float | None

    @property
    def verdict(self):
        if self.bar is None:
            return ""
        return "ok" if self.high <= self.bar else "above" if self.low > self.bar else "unclear"

    def __str__(self):
        bar = "" if self.bar is None else f"<= {self.bar:g} {self.unit}"
        shown = f"{self.median:+9.2f} [{self.low:+9.2f}, {self.high:+9.2f}] {self.unit:2}"
        return f"{self.way:14} {self.what:34} {shown}  {bar:10} {self.verdict}".rstrip()


def row(way, what, groups, unit, bar=None):
    scale = {"%": 100, "ms": 1000, "s": 1}[unit]
    median, low, high = (scale * value for value in interval(groups))
    return Row(way.name, what, unit, median, low, high, None if bar is None else bar * scale)


def judge(way, loops, rounds, blocks, folder):
    """Measure one way against the plain run."""
    rows = []
    for loop in loops:
        found = []
        for number in range(rounds):
            found.append(step_pairs(way, loop, blocks, number, folder))
            print(".", end="", file=sys.stderr, flush=True)
        step = statistics.median(value for each in found for value in each["step"])
        what = f"step of {step * 1e3:.2f} ms"
        rows.append(row(way, f"{what}, wall", [each["wall"] for each in found], "%", loop.bar))
        rows.append(row(way, f"{what}, CPU", [each["cpu"] for each in found], "%"))
    found = []
    for number in range(max(2, 2 * rounds - 2)):
        found.append(whole_pair(way, loops[0], 8, number, folder))
        print(".", end="", file=sys.stderr, flush=True)
    rows.append(
        row(way, "start, to the script's first line", [each["to_first_line"] for each in found], "ms", START_BAR)
    )
    rows.append(row(way, "start, import torch", [each["import"] for each in found], "ms"))
    rows.append(row(way, "end, after the loop", [each["end"] for each in found], "s"))
    rows.append(row(way, "CPU of a whole short run", [each["total_cpu"] for each in found], "%"))
    print(f" {way.name}", file=sys.stderr)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two rounds of eight turns")
    parser.add_argument("--aa", action="store_true", help="the plain run against itself")
    parser.add_argument("--peer", metavar="PYTHON", help="Python of a venv that has traceml-ai 0.5")
    parser.add_argument("--rounds", type=int, help="pairs of processes a loop (default: 6; 2 with --quick)")
    parser.add_argument("--loop", choices=[loop.name for loop in LOOPS], action="append", help="only this loop")
    parser.add_argument("--json", type=Path, help="write the table to this file too")
    args = parser.parse_args()
    rounds = args.rounds or (2 if args.quick else 6)
    blocks = 8 if args.quick else 40
    loops = [loop for loop in LOOPS if not args.loop or loop.name in args.loop]

    rows = []
    with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
        for way in ways(args):
            rows += judge(way, loops, rounds, blocks, Path(folder))
    print(f"\nagainst the plain run on {os.cpu_count()} cores: median [95 % interval]\n")
    print(*rows, sep="\n")
    event = None if args.aa else event_cost()
    if event is not None:
        print(f"{'profile-train':14} {'one event':34} {event * 1e6:9.2f} us")
    if args.json:
        table = [{**asdict(each), "verdict": each.verdict} for each in rows]
        args.json.write_text(json.dumps({"rows": table, "event_us": event and event * 1e6}, indent=1))


if __name__ == "__main__":
    main()
