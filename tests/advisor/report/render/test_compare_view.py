"""The text about two runs. The basis of each verdict: tests/advisor/compare/."""

from dataclasses import replace

from profiles import RUN, metrics, rank, steps
from snapshots import same, scenes

from advisor.compare.comparison import compare
from advisor.report.render.compare_view import sections
from advisor.report.render.section_text import written
from profiler.schema import HostSample, LoaderFact

SHAPE = (0.97, 1.0, 1.03, 1.0, 0.98, 1.02, 1.0)
TIMES = tuple(0.1 * SHAPE[i % len(SHAPE)] for i in range(140))


def a_run(times=TIMES, *, columns=None, about=RUN, host=(), **tables):
    made = steps(*times, **(columns or {"forward": 0.1}))
    return metrics(rank(steps=made, **tables), runs=(about,), host_samples=host)


def saving(seconds):
    made = steps(*TIMES, checkpoint_save=0.0)
    return metrics(
        rank(
            steps=tuple(replace(one, checkpoint_save=seconds) if i % 5 == 0 else one for i, one in enumerate(made)),
        ),
        runs=(RUN,),
    )


def busy(machine):
    return tuple(HostSample(time=t, cpu=4.0, cpu_workers=0.0, machine_cpu=machine) for t in (2.0, 5.0, 8.0))


def slower(by):
    return tuple(time * by for time in TIMES)


def batches(by, size):
    columns = {"forward": 0.1 * by, "batches": 1.0}
    return a_run(slower(by), columns=columns, loaders=(LoaderFact(id=1, batch_size=size),))


def test_snapshot_of_comparisons():
    pairs = {
        "slower": (a_run(), a_run(slower(1.5))),
        "faster": (a_run(), a_run(slower(0.5))),
        "the same": (a_run(), a_run()),
        "too few steps": (a_run(), a_run(TIMES[:12])),
        "no steps": (a_run(), a_run(())),
        "one long stall": (a_run(), a_run((*TIMES[:60], 5.0, *TIMES[61:]))),
        "checkpoints between the steps": (saving(0.0), saving(0.2)),
        "a phase that A did not measure": (a_run(), a_run(columns={"forward": 0.08, "data_wait": 0.02})),
        "another machine, killed": (a_run(), a_run(about=replace(RUN, cpu_model="Z", cores=4.0, outcome="killed"))),
        "twice the batch": (batches(1, 32), batches(2, 64)),
        "other programs": (a_run(host=busy(5.0)), a_run(slower(1.5), host=busy(16.0))),
        "other programs during both": (a_run(host=busy(16.0)), a_run(slower(1.5), host=busy(16.0))),
    }
    same("comparisons.txt", scenes({name: written(sections(compare(*pair))) for name, pair in pairs.items()}))


def test_phase_that_is_zero_in_both_runs_has_no_line():
    nothing = a_run(columns={"gc": 0.0})
    assert "Garbage collection" not in written(sections(compare(nothing, nothing)))


def test_no_change_has_no_sign():
    text = written(sections(compare(a_run(), a_run())))
    assert "-0.0%" not in text
    assert "+0.0%" not in text
