"""Measure what a whole run costs: plain and treated runs one after the other, in alternating order."""

import statistics

import bars
from loops import LOOPS
from program import Program
from rows import row
from steps import there_and_back

SHORT = LOOPS["1 ms"]
SHORT_SECONDS = 1.0
LONG = LOOPS["10 ms"]
LONG_SECONDS = 30.0
FOREVER = 3600
"""Most seconds of a run: it completes its steps, however long they take."""

START_CASE = "start and end"
LONG_CASE = "30 s, a step of 10 ms, windows on"


def steps_for(seconds, way, loop, folder):
    """Return how many steps of this loop take `seconds` on this machine."""
    program = Program(way, loop, folder / "calibration", loop.steps, seconds)
    program.wait_turn()
    program.block()
    program.block()
    walls = program.finish()["blocks"][1]["walls"]
    return max(loop.steps, round(seconds / statistics.median(walls)))


def pair(way, loop, steps, number, folder):
    """Return treated and plain figures of two whole runs."""
    runs = {}
    for each in there_and_back([way.baseline, way], number):
        program = Program(each, loop, folder / each.name.replace(" ", "-"), steps, FOREVER)
        program.wait_turn()
        program.block()
        reading = program.read()
        runs[each.name] = {
            **program.finish(),
            "memory": reading.program[0].memory,
            "recorder_memory": reading.memory_beside,
            "recorder_cpu": reading.cpu_beside,
        }
    plain, treated = runs[way.baseline.name], runs[way.name]
    added = {key: [treated[key] - plain[key]] for key in plain if key != "blocks"}
    return {
        **added,
        "slower": [treated["run"] / plain["run"] - 1],
        "share": [added["recorder_cpu"][0] / treated["run"]],
        "plain_run": [plain["run"]],
    }


def start_rows(way, found):
    """Yield the rows of short runs, with everything that a run has by default, including the report."""

    def one(what, key, unit, bar=None):
        return row(way.name, START_CASE, what, [each[key] for each in found], unit, bar)

    yield one("start, to the script's first line", "to_first_line", "ms", bars.START)
    yield one("start, until torch is imported", "to_torch", "ms")
    yield one("end, after the loop", "end", "s")


def long_rows(way, found):
    """Yield the rows of long runs, from the command to the end of the loop."""

    def one(what, key, unit, bar=None):
        return row(way.name, LONG_CASE, what, [each[key] for each in found], unit, bar)

    run = statistics.median(value for each in found for value in each["plain_run"])
    yield one(f"run of {run:.1f} s", "slower", "%", bars.BUDGET)
    if way.starts:
        yield one("recorder, share of a core", "share", "%")
        yield one("recorder, CPU of the run", "recorder_cpu", "s")
        yield one("recorder, memory, peak", "recorder_memory", "MB")
    yield one("memory of the program, peak", "memory", "MB", bars.MEMORY)
    yield one("end, without a report", "end", "s")
