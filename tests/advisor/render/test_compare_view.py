"""What is said beside the numbers."""

from dataclasses import replace

import pytest
from profiles import RUN, metrics, rank, steps

from advisor.compare.comparison import compare
from advisor.render.compare_view import headline, sections
from advisor.render.section_text import written
from profiler.schema import HostSample, LoaderFact

SHAPE = (0.97, 1.0, 1.03, 1.0, 0.98, 1.02, 1.0)


def run(mean=0.1, number=140, run=RUN, host=(), made=None, columns=None, **tables):
    times = [mean * SHAPE[i % len(SHAPE)] for i in range(number)]
    made = steps(*times, **(columns or {"forward": mean})) if made is None else made
    return metrics(rank(steps=made, **tables), runs=(run,), host_samples=host)


def text(before, after):
    return " ".join(written(sections(compare(before, after))).split())


def busy(machine):
    return tuple(HostSample(time=t, cpu=4.0, cpu_workers=0.0, machine_cpu=machine) for t in (2.0, 5.0, 8.0))


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (run(0.15), "Slower: a mean step takes 150 ms in B, 100 ms in A: 50% more."),
        (run(0.05), "Faster: a mean step takes 50 ms in B, 100 ms in A: 50% less."),
        (run(0.1), "The same speed: a mean step takes 100 ms in B, 100 ms in A: no difference (-0.2 to 0.2%)."),
        (run(number=12), "Too few steps to tell: A has 130 steady ones, B 6; it takes 30 of each."),
        (run(made=()), "Nothing can be told: no steady training step was measured in B."),
    ],
)
def test_the_verdict_is_a_sentence(after, said):
    assert headline(compare(run(), after)).startswith(said)


def test_a_mean_that_stalls_make_unclear_gives_way_to_the_typical_step():
    times = [0.1 * SHAPE[i % len(SHAPE)] for i in range(140)]
    times[60] = 5.0
    told = text(run(), run(made=steps(*times)))

    assert told.startswith("The same speed: a typical step takes 100 ms in B, 100 ms in A")
    assert "Single stalls leave the mean unclear:" in told


def test_what_makes_the_two_hard_to_compare_is_said():
    other = replace(RUN, cpu_model="Z", cores=4.0)
    batches = {"columns": {"forward": 0.1, "batches": 1.0}}
    small = run(loaders=(LoaderFact(id=1, batch_size=32),), **batches)
    large = run(0.2, loaders=(LoaderFact(id=1, batch_size=64),), columns={"forward": 0.2, "batches": 1.0})

    assert "They ran on different machines (machine: cpu_model, machine: cores)" in text(run(), run(run=other))
    assert "A step trains on 32 samples in A and 64 in B: times of B are scaled to as many" in text(small, large)
    crowded = text(run(host=busy(5.0)), run(0.15, host=busy(16.0)))
    assert crowded.startswith("Cannot be told while other programs take the cores: a mean step takes 150 ms")
    assert "Other programs took cores in B that they left alone in the other run" in crowded
    assert ", killed." in text(run(), run(run=replace(RUN, outcome="killed")))


def test_a_phase_that_one_run_did_not_measure_is_said_to_be_so():
    told = text(run(), run(columns={"forward": 0.08, "data_wait": 0.02}))

    assert "Waiting for data not measured 20 ms" in told
    assert "Not measured in A, so part of its other phases there: waiting for data." in told


def test_what_is_nothing_in_both_has_no_line():
    assert "Garbage collection" not in text(run(columns={"gc": 0.0}), run(columns={"gc": 0.0}))


def test_what_is_lost_between_the_steps_is_in_the_verdict():
    def saving(seconds):
        made = steps(*[0.1 * SHAPE[i % len(SHAPE)] for i in range(140)], checkpoint_save=0.0)
        return tuple(replace(each, checkpoint_save=seconds) if i % 5 == 0 else each for i, each in enumerate(made))

    told = text(run(made=saving(0.0)), run(made=saving(0.2)))

    assert told.startswith("Slower: a step, with what is between steps, takes 140 ms in B, 100 ms in A: 40% more")
    assert "Saving checkpoints 0 s 40 ms +40% [" in told


def test_no_change_has_no_sign():
    told = text(run(), run())

    assert "100 ms 100 ms 0% [" in told
    assert "-0.0%" not in told
    assert "+0.0%" not in told
