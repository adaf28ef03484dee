from dataclasses import replace

import pytest

from profiler.agent import ring
from profiler.recorder.gpu_phases import MOST_WAITING, GpuTimes
from profiler.schema import PHASES, TAG_CHECKPOINT, TAG_UNREACHED, Step

ORIGIN = 1_000_000_000
HOST = 0.010
"""Duration of a step on the host, in s. The host runs ahead, so the GPU's is longer."""


def a_step(index, **fields):
    return replace(
        Step(
            pid=1,
            index=index,
            start=index * HOST,
            duration=HOST,
            data_wait=0.001,
            loader_overhead=0.003,
            forward=0.002,
            backward=0.001,
            optimizer=0.001,
            gc=0.0005,
            other=0.0015,
            evaluation=0.0,
            checkpoint_save=0.0,
            epoch_start=0.0,
        ),
        **fields,
    )


def a_mark(at, code, gpu_ns):
    """Return a mark that the host made `at` seconds into the run."""
    ns = ORIGIN + round(at * 1e9)
    return ring.Event(ns, ns, gpu_ns, 0, 0, 0, ring.GPU, 0, code, 0)


def marks(index, first=1_000_000):
    """Return the marks of a step: 8 ms for data, 10 forward, 20 backward, 5 in the optimizer, and 4 between them."""
    begin = index * HOST
    codes = (
        (ring.MARK_FETCH_START, first),
        (ring.MARK_FETCH_END, 8_000_000),
        (ring.MARK_FORWARD_START, 2_000_000),
        (ring.MARK_FORWARD_END, 10_000_000),
        (ring.MARK_BACKWARD_START, 0),
        (ring.MARK_BACKWARD_END, 20_000_000),
        (ring.MARK_OPTIMIZER_START, 1_000_000),
        (ring.MARK_OPTIMIZER_END, 5_000_000),
    )
    return [a_mark(begin + (place + 1) * HOST / 9, code, gpu) for place, (code, gpu) in enumerate(codes)]


ALL_REACHED = a_mark(1e6, ring.MARK_ALL_REACHED, -1)._replace(b=-1)
"""The agent's last mark, if the GPU reached all marks."""


@pytest.fixture
def times():
    return GpuTimes(ORIGIN)


def test_steps_pass_at_once_without_marks(times):
    steps = [a_step(0), a_step(1)]
    assert times.join(steps, []) == steps
    assert times.join([a_step(2)], []) == [a_step(2)]
    assert times.join([], [], final=True) == []


def test_gpu_times_replace_host_times(times):
    assert times.join([a_step(0)], marks(0)) == []
    (step,) = times.join([], marks(1))
    assert step.duration == pytest.approx(0.047)
    assert (step.forward, step.backward, step.optimizer) == pytest.approx((0.010, 0.020, 0.005))
    assert step.other == pytest.approx(0.001 + 0.002 + 0 + 0.001)
    assert step.gc is None
    assert sum(getattr(step, phase) or 0 for phase in PHASES) == pytest.approx(step.duration)


def test_data_time_is_split_in_host_proportions(times):
    (step,) = times.join([a_step(0)], marks(0), final=True)
    assert (step.data_wait, step.loader_overhead) == pytest.approx((0.002, 0.006))
    assert step.fetch_host == a_step(0).fetch_host


def test_data_time_unseen_by_the_host_is_overhead(times):
    (step,) = times.join([a_step(0, data_wait=0.0, loader_overhead=0.0)], marks(0), final=True)
    assert (step.data_wait, step.loader_overhead) == pytest.approx((0, 0.008))


def test_start_and_index_do_not_change(times):
    (step,) = times.join([a_step(3)], marks(3), final=True)
    assert (step.index, step.start, step.pid) == (3, 3 * HOST, 1)


@pytest.mark.parametrize(
    "these",
    [
        marks(0, first=-1),  # the first after a gap
        marks(0)[:-1],  # the end is missing
        marks(1),  # another step's marks
    ],
)
def test_step_without_all_its_marks_has_no_phases(times, these):
    """The host's times would be launch times."""
    (step,) = times.join([a_step(0)], [*these, ALL_REACHED], final=True)
    assert [getattr(step, phase) for phase in PHASES] == [None] * len(PHASES)
    assert step == a_step(0, **dict.fromkeys(PHASES))


def test_unmeasured_short_step_gets_phase_shares_of_last_measured_step(times):
    measured, between = times.join([a_step(0), a_step(1)], [*marks(0), ALL_REACHED], final=True)
    assert between.duration == HOST
    assert between.forward == pytest.approx(HOST * measured.forward / measured.duration)
    assert sum(getattr(between, phase) or 0 for phase in PHASES) == pytest.approx(HOST)


@pytest.mark.parametrize(
    "other",
    [
        {"forward": None, "backward": None, "optimizer": None},  # replayed as a CUDA graph
        {"micro_steps": 2.0},
        dict.fromkeys(PHASES),  # marks have been given up since
    ],
)
def test_step_of_another_kind_gets_no_phase_shares_of_last_step(times, other):
    steps = [a_step(0), a_step(1, **other), a_step(2)]
    last, step, alike = times.join(steps, [*marks(0), ALL_REACHED], final=True)
    assert step == a_step(1, **{**other, **dict.fromkeys(PHASES)})
    assert alike.forward == pytest.approx(HOST * last.forward / last.duration)


def test_step_with_unmeasurable_phases_gets_only_gpu_duration(times):
    """The marks come from only one of the model's GPUs."""
    unmeasured = dict.fromkeys(PHASES)
    (step,) = times.join([a_step(0, **unmeasured)], marks(0), final=True)
    assert step == a_step(0, **unmeasured, duration=step.duration)
    assert step.duration == pytest.approx(0.047)


def test_steps_not_known_to_be_reached_by_gpu_are_tagged(times):
    """The program ended without waiting for its GPU, or was killed: the host's times are launch times."""
    first = a_mark(0.0, ring.MARK_FIRST, -1)._replace(b=-1)
    assert times.join([a_step(0)], [first]) == []
    reached, *others = times.join([a_step(1), a_step(2)], marks(0), final=True)
    assert (reached.tags, reached.duration) == (0, pytest.approx(0.047))
    assert others == [a_step(index, tags=TAG_UNREACHED, **dict.fromkeys(PHASES)) for index in (1, 2)]


def test_steps_in_a_marking_pause_share_its_gpu_time(times):
    """Each step gets a share in proportion to its host time; the last one ends with the first mark after the pause."""
    after = a_mark(2.99 * HOST, ring.MARK_OPTIMIZER_END, -1)._replace(c=90_000_000)
    longer = a_step(2, duration=2 * HOST)
    steps = [a_step(0), a_step(1), longer, a_step(4)]
    end = [mark._replace(start=mark.start + round(HOST * 1e9)) for mark in marks(3)]
    first, *paused, last = times.join(steps, [*marks(0), after, *end], final=True)
    assert (first.duration, last.duration) == (pytest.approx(0.047), pytest.approx(0.047))
    assert [step.duration for step in paused] == pytest.approx([0.030, 0.060])
    assert sum(step.forward for step in paused) == pytest.approx(0.090 * first.forward / first.duration)


def test_steps_with_only_end_marks_get_their_own_gpu_time(times):
    """In a pause during which the GPU lags behind. A step with two optimizers has two ends."""
    ends = [
        a_mark(moment * HOST, ring.MARK_OPTIMIZER_END, -1)._replace(c=ns)
        for moment, ns in ((1.9, 40_000_000), (2.5, 20_000_000), (2.9, 30_000_000), (3.9, 60_000_000))
    ]
    steps = [a_step(index) for index in range(4)]
    first, *others = times.join(steps, [*marks(0), *ends, ALL_REACHED], final=True)
    assert [step.duration for step in others] == pytest.approx([0.040, 0.050, 0.060])
    assert [step.forward / step.duration for step in others] == pytest.approx([first.forward / first.duration] * 3)


def test_marking_pause_ending_mid_step_includes_the_whole_step(times):
    """The step's first optimizer ends the pause."""
    ends = [a_mark(2.5 * HOST, ring.MARK_OPTIMIZER_END, -1)._replace(c=60_000_000)]
    ends += [a_mark(2.7 * HOST, ring.MARK_FORWARD_END, 0), a_mark(2.9 * HOST, ring.MARK_OPTIMIZER_END, 20_000_000)]
    _, *paused = times.join([a_step(index) for index in range(3)], [*marks(0), *ends, ALL_REACHED], final=True)
    assert [step.duration for step in paused] == pytest.approx([0.040, 0.040])


def test_gpu_time_of_a_pause_waits_for_its_last_step(times):
    """A step's end is certain only when its optimizer steps again; the mark at its end may come earlier."""
    after = a_mark(2.9 * HOST, ring.MARK_OPTIMIZER_END, -1)._replace(c=60_000_000)
    assert len(times.join([a_step(0), a_step(1)], [*marks(0), after])) == 1
    paused = times.join([a_step(2)], marks(3))
    assert [step.duration for step in paused] == pytest.approx([0.030, 0.030])


def test_late_marks_are_not_assigned_to_other_steps(times):
    times.join([], [a_mark(0.0, ring.MARK_FIRST, -1)._replace(b=-1)])
    done = times.join([a_step(index) for index in range(MOST_WAITING + 1)], [])
    late = [mark for step in done for mark in marks(step.index)]
    step, *_ = times.join([], late + marks(len(done)), final=True)
    assert (step.index, step.duration) == (len(done), pytest.approx(0.047))


def test_a_program_without_a_loader_waits_for_no_data(times):
    (step,) = times.join([a_step(0, data_wait=None, loader_overhead=None)], marks(0), final=True)
    assert (step.data_wait, step.loader_overhead) == (None, None)
    assert sum(getattr(step, phase) or 0 for phase in PHASES) == pytest.approx(step.duration)


def test_step_that_excludes_a_checkpoint_has_no_phases(times):
    """The GPU's segments include the checkpoint."""
    saved = a_step(0, tags=TAG_CHECKPOINT, checkpoint_save=0.004, duration=HOST - 0.004)
    first, second = times.join([saved, a_step(1)], marks(0) + marks(1), final=True)
    assert first == replace(saved, **dict.fromkeys(PHASES))
    assert second.duration == pytest.approx(0.047)


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_phase_unseen_by_the_host_counts_as_other(times, phase):
    """For example in a compiled or replayed step."""
    (step,) = times.join([a_step(0, **{phase: None})], marks(0), final=True)
    assert getattr(step, phase) is None
    assert step.duration == pytest.approx(0.047)
    assert sum(getattr(step, phase) or 0 for phase in PHASES) == pytest.approx(step.duration)


def test_gpu_with_most_compute_defines_phases_of_a_two_gpu_step(times):
    other = [mark._replace(b=1, a=mark.a // 2, start=mark.start - 1) for mark in marks(0)]
    other[0] = other[0]._replace(a=24_000_000)
    both = sorted(marks(0) + other, key=lambda mark: mark.start)
    (step,) = times.join([a_step(0)], both, final=True)
    assert (step.forward, step.backward, step.optimizer) == pytest.approx((0.010, 0.020, 0.005))
    assert step.duration == pytest.approx(0.047)


def test_gpu_with_a_gap_in_its_marks_is_not_used(times):
    gap = [mark._replace(b=1, a=-1) for mark in marks(0)]
    (step,) = times.join([a_step(0)], gap + marks(0), final=True)
    assert step.forward == pytest.approx(0.010)


def test_step_can_end_at_a_boundary_set_by_the_program(times):
    reached = [*marks(0), a_mark(0.0095, ring.MARK_STEP, 3_000_000)]
    (step,) = times.join([a_step(0)], reached, final=True)
    assert step.duration == pytest.approx(0.050)


def test_steps_wait_for_gpu_marks_in_order(times):
    assert times.join([a_step(0), a_step(1)], marks(0)) == []
    assert [step.index for step in times.join([a_step(2)], marks(1))] == [0]
    assert [step.index for step in times.join([a_step(3)], marks(2) + marks(3))] == [1, 2]
    (last,) = times.join([], [], final=True)
    assert last.index == 3
    assert last.duration == pytest.approx(0.047)


def test_each_step_gets_its_own_marks(times):
    slow = [mark._replace(a=mark.a * 2) for mark in marks(1)]
    steps = times.join([a_step(0), a_step(1), a_step(2)], marks(0) + slow + marks(2), final=True)
    assert [step.duration for step in steps] == pytest.approx([0.047, 0.094, 0.047])


def test_stretch_without_marks_delays_steps_but_loses_none(times):
    """Short steps are measured only from time to time."""
    done = times.join([a_step(index) for index in range(16)], marks(0) + marks(1))
    done += times.join([a_step(16), a_step(17)], marks(16, first=-1) + marks(17))
    done += times.join([], [], final=True)
    assert [step.index for step in done] == list(range(18))
    measured = [step.index for step in done if step.duration != HOST]
    assert measured == [0, 1, 17]


def test_steps_without_marks_do_not_wait_forever(times):
    """The marks were given up, or the GPU is lost."""
    done = times.join([a_step(0)], marks(0))
    for index in range(1, 2 * MOST_WAITING):
        done += times.join([a_step(index)], [])
    assert len(done) >= MOST_WAITING
    assert [step.index for step in done] == list(range(len(done)))
    done += times.join([], [], final=True)
    assert len(done) == 2 * MOST_WAITING
