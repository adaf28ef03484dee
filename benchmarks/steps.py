"""Measure what a step costs: a plain and a treated process of the same loop run side by side and take turns of a
quarter of a second (A B, B A, A B, ...), so that other load on the machine affects both. Each pair of neighboring turns
gives one comparison."""

import statistics
import time

import bars
from loops import TURN
from program import Program
from rows import row

LONGEST = 4 * TURN
"""Most seconds of a turn, however slow the machine or the way."""
COLD = 2
"""First steps of a turn that are left out, because the caches still hold the other process."""
SETTLE = 0.2
"""Seconds for the workers of a program to fill its queue again after its turn."""


def there_and_back(items, number):
    """Return A B, then B A, and so on."""
    return items if number % 2 == 0 else items[::-1]


def pair(way, loop, turns, number, folder, watched):
    """Return the figures of one pair of processes, a list each; the recorder is watched for `watched` seconds."""
    programs = {}
    for each in there_and_back([way.baseline, way], number):
        programs[each.name] = Program(each, loop, folder / each.name.replace(" ", "-"), loop.steps, LONGEST)
        programs[each.name].wait_turn()
    workers = {name: [] for name in programs}
    for turn in range(turns + 1):
        for name, program in there_and_back(list(programs.items()), turn):
            before = _worker_cpu(program, loop)
            program.block()
            if loop.workers:
                time.sleep(SETTLE)
                workers[name].append(_worker_cpu(program, loop) - before)
    plain, treated = programs[way.baseline.name], programs[way.name]
    share = _watch(plain, treated, watched)
    events = way.events(treated.folder)
    used = [each.read() for each in (plain, treated)]
    plain, treated = plain.finish(), treated.finish()
    blocks = [each["blocks"][1 : turns + 1] for each in (plain, treated)]
    spent = [workers[each.name][1:] for each in (way.baseline, way)]
    return {
        **_compare(*blocks),
        **_memory(*used),
        "workers_cpu": _difference(*map(_per_step, spent, blocks)),
        "share": [share],
        "recorder_cpu": [used[1].cpu_beside - used[0].cpu_beside],
        "to_first_line": [treated["to_first_line"] - plain["to_first_line"]],
        "end": [treated["end"] - plain["end"]],
        "events": [] if events is None else [events],
    }


def _worker_cpu(program, loop):
    return sum(used.cpu for used in program.read().workers) if loop.workers else 0.0


def _watch(plain, treated, seconds):
    """Return the share of a core that the other processes of the treated command take while it runs alone, minus the
    same share of the plain command: both may have a launcher, or a recorder."""

    def alone(program):
        before, start = program.read().cpu_beside, time.monotonic()
        while time.monotonic() < start + seconds:
            program.block()
        return (program.read().cpu_beside - before) / (time.monotonic() - start)

    return alone(treated) - alone(plain)


def _compare(plain, treated):
    """Compare block by block."""
    medians = [[statistics.median(block["walls"][COLD:]) for block in blocks] for blocks in (plain, treated)]
    means = [[statistics.fmean(block["walls"][COLD:]) for block in blocks] for blocks in (plain, treated)]
    return {
        "step": medians[0],
        "ratio": [b / a - 1 for a, b in zip(*medians, strict=True)],
        "median": _difference(*medians),
        "mean": _difference(*means),
        "cpu": _difference(*([block["cpu"] for block in blocks] for blocks in (plain, treated))),
    }


def _difference(plain, treated):
    return [b - a for a, b in zip(plain, treated, strict=True)]


def _per_step(spent, blocks):
    return [seconds / len(block["walls"]) for seconds, block in zip(spent, blocks, strict=False)]


def _memory(plain, treated):
    """Return the added peak bytes of each training process, of each of its workers, and of other processes."""

    def mean(each):
        return statistics.fmean(used.memory for used in each) if each else 0.0

    return {
        "memory": [mean(treated.program) - mean(plain.program)],
        "workers_memory": [mean(treated.workers) - mean(plain.workers)],
        "recorder_memory": [treated.memory_beside - plain.memory_beside],
    }


def rows_of(way, loop, found, events):
    """Yield the table's rows from all pairs; `events` per step set the bar, None sets none."""

    def one(what, key, unit, bar=None):
        return row(way.name, loop.name, what, [each[key] for each in found], unit, bar)

    step = statistics.median(value for each in found for value in each["step"])
    of = f"step of {step * 1e3:.3g} ms"
    bar = bars.cost(events)
    yield one(f"{of}, median", "ratio", "%", loop.share)
    yield one("step, median", "median", "us", None if loop.crowded else bar)
    yield one("step, mean", "mean", "us", None if loop.crowded else bar)
    yield one("step, CPU of the process", "cpu", "us", bar if loop.crowded else None)
    if loop.workers:
        yield one("batch, CPU of the workers", "workers_cpu", "us")
        yield one("memory of each worker, peak", "workers_memory", "MB")
    if any(each["events"] for each in found):
        yield row(way.name, loop.name, "events a step", [each["events"] for each in found], "")
    yield one("memory of the program, peak", "memory", "MB", bars.MEMORY)
    if way.starts:
        yield one("recorder, share of a core", "share", "%", bars.RECORDER if loop.at_bar else None)
        yield one("recorder, CPU of the run", "recorder_cpu", "s")
        yield one("recorder, memory, peak", "recorder_memory", "MB")
        yield one("start, to the script's first line", "to_first_line", "ms", bars.START)
    yield one("end, without a report", "end", "s")
