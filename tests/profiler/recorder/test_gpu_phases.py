from dataclasses import replace

import pytest

from profiler.agent import ring
from profiler.recorder.gpu_phases import MOST_WAITING, GpuTimes
from profiler.schema import PHASES, TAG_CHECKPOINT, TAG_UNREACHED, Step

ORIGIN = 1_000_000_000
HOST = 0.010
"""Of a step, s: the host runs ahead, so this is less than the GPU's."""


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
    """Made by the host `at` seconds into the run."""
    ns = ORIGIN + round(at * 1e9)
    return ring.Event(ns, ns, gpu_ns, 0, 0, 0, ring.GPU, 0, code, 0)


def marks(index, first=1_000_000):
    """Those of a step: 8 ms for data, 10 forward, 20 backward, 5 in the optimizer, and 4 between them."""
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
"""What the agent says last, if it is so."""


@pytest.fixture
def times():
    return GpuTimes(ORIGIN)


def test_without_any_mark_steps_pass_at_once(times):
    steps = [a_step(0), a_step(1)]
    assert times.join(steps, []) == steps
    assert times.join([a_step(2)], []) == [a_step(2)]
    assert times.join([], [], final=True) == []


def test_the_gpus_times_take_the_place_of_the_hosts(times):
    assert times.join([a_step(0)], marks(0)) == []
    (step,) = times.join([], marks(1))
    assert step.duration == pytest.approx(0.047)
    assert (step.forward, step.backward, step.optimizer) == pytest.approx((0.010, 0.020, 0.005))
    assert step.other == pytest.approx(0.001 + 0.002 + 0 + 0.001)
    assert step.gc is None
    assert sum(getattr(step, phase) or 0 for phase in PHASES) == pytest.approx(step.duration)


def test_time_for_data_is_split_as_the_host_saw_it(times):
    (step,) = times.join([a_step(0)], marks(0), final=True)
    assert (step.data_wait, step.loader_overhead) == pytest.approx((0.002, 0.006))
    assert step.fetch_host == a_step(0).fetch_host


def test_data_of_which_the_host_saw_nothing_is_overhead(times):
    (step,) = times.join([a_step(0, data_wait=0.0, loader_overhead=0.0)], marks(0), final=True)
    assert (step.data_wait, step.loader_overhead) == pytest.approx((0, 0.008))


def test_start_and_index_stay(times):
    (step,) = times.join([a_step(3)], marks(3), final=True)
    assert (step.index, step.start, step.pid) == (3, 3 * HOST, 1)


@pytest.mark.parametrize(
    "these",
    [
        marks(0, first=-1),  # the first after a gap
        marks(0)[:-1],  # the end is missing
        marks(1),  # another step's
    ],
)
def test_a_step_that_is_not_covered_has_no_phases(times, these):
    """The host's would be times of launching."""
    (step,) = times.join([a_step(0)], [*these, ALL_REACHED], final=True)
    assert [getattr(step, phase) for phase in PHASES] == [None] * len(PHASES)
    assert step == a_step(0, **dict.fromkeys(PHASES))


def test_of_short_steps_those_between_two_measured_ones_have_the_shares_of_the_last(times):
    measured, between = times.join([a_step(0), a_step(1)], [*marks(0), ALL_REACHED], final=True)
    assert between.duration == HOST
    assert between.forward == pytest.approx(HOST * measured.forward / measured.duration)
    assert sum(getattr(between, phase) or 0 for phase in PHASES) == pytest.approx(HOST)


@pytest.mark.parametrize(
    "other",
    [
        {"forward": None, "backward": None, "optimizer": None},  # replayed as a CUDA graph
        {"micro_steps": 2.0},
        dict.fromkeys(PHASES),  # given up since
    ],
)
def test_a_step_of_another_kind_has_not_the_shares_of_the_last(times, other):
    steps = [a_step(0), a_step(1, **other), a_step(2)]
    last, step, alike = times.join(steps, [*marks(0), ALL_REACHED], final=True)
    assert step == a_step(1, **{**other, **dict.fromkeys(PHASES)})
    assert alike.forward == pytest.approx(HOST * last.forward / last.duration)


def test_of_a_step_whose_phases_cannot_be_measured_only_the_duration_is_the_gpus(times):
    """The marks come from one of the GPUs that a model lies on."""
    unmeasured = dict.fromkeys(PHASES)
    (step,) = times.join([a_step(0, **unmeasured)], marks(0), final=True)
    assert step == a_step(0, **unmeasured, duration=step.duration)
    assert step.duration == pytest.approx(0.047)


def test_steps_that_no_gpu_is_known_to_have_reached_are_told_from_others(times):
    """The program has ended without waiting for its GPU, or was killed: the host's times are those of launches."""
    first = a_mark(0.0, ring.MARK_FIRST, -1)._replace(b=-1)
    assert times.join([a_step(0)], [first]) == []
    reached, *others = times.join([a_step(1), a_step(2)], marks(0), final=True)
    assert (reached.tags, reached.duration) == (0, pytest.approx(0.047))
    assert others == [a_step(index, tags=TAG_UNREACHED, **dict.fromkeys(PHASES)) for index in (1, 2)]


def test_steps_of_a_pause_share_the_gpus_time(times):
    """In proportion to the host's; the last of them ends with the first mark after the pause."""
    after = a_mark(2.99 * HOST, ring.MARK_OPTIMIZER_END, -1)._replace(c=90_000_000)
    longer = a_step(2, duration=2 * HOST)
    steps = [a_step(0), a_step(1), longer, a_step(4)]
    end = [mark._replace(start=mark.start + round(HOST * 1e9)) for mark in marks(3)]
    first, *paused, last = times.join(steps, [*marks(0), after, *end], final=True)
    assert (first.duration, last.duration) == (pytest.approx(0.047), pytest.approx(0.047))
    assert [step.duration for step in paused] == pytest.approx([0.030, 0.060])
    assert sum(step.forward for step in paused) == pytest.approx(0.090 * first.forward / first.duration)


def test_while_only_the_ends_of_steps_are_marked_each_has_the_gpus_time_of_its_own(times):
    """In a pause of which the GPU is behind. A step of two optimizers has two ends."""
    ends = [
        a_mark(moment * HOST, ring.MARK_OPTIMIZER_END, -1)._replace(c=ns)
        for moment, ns in ((1.9, 40_000_000), (2.5, 20_000_000), (2.9, 30_000_000), (3.9, 60_000_000))
    ]
    steps = [a_step(index) for index in range(4)]
    first, *others = times.join(steps, [*marks(0), *ends, ALL_REACHED], final=True)
    assert [step.duration for step in others] == pytest.approx([0.040, 0.050, 0.060])
    assert [step.forward / step.duration for step in others] == pytest.approx([first.forward / first.duration] * 3)


def test_a_pause_that_ends_amid_a_step_has_all_of_that_step(times):
    """Its first optimizer ends the pause."""
    ends = [a_mark(2.5 * HOST, ring.MARK_OPTIMIZER_END, -1)._replace(c=60_000_000)]
    ends += [a_mark(2.7 * HOST, ring.MARK_FORWARD_END, 0), a_mark(2.9 * HOST, ring.MARK_OPTIMIZER_END, 20_000_000)]
    _, *paused = times.join([a_step(index) for index in range(3)], [*marks(0), *ends, ALL_REACHED], final=True)
    assert [step.duration for step in paused] == pytest.approx([0.040, 0.040])


def test_a_pauses_time_waits_for_the_last_of_its_steps(times):
    """A step is known to be over only as its optimizer steps again, the mark at its end maybe before."""
    after = a_mark(2.9 * HOST, ring.MARK_OPTIMIZER_END, -1)._replace(c=60_000_000)
    assert len(times.join([a_step(0), a_step(1)], [*marks(0), after])) == 1
    paused = times.join([a_step(2)], marks(3))
    assert [step.duration for step in paused] == pytest.approx([0.030, 0.030])


def test_marks_that_come_too_late_are_no_other_steps(times):
    times.join([], [a_mark(0.0, ring.MARK_FIRST, -1)._replace(b=-1)])
    done = times.join([a_step(index) for index in range(MOST_WAITING + 1)], [])
    late = [mark for step in done for mark in marks(step.index)]
    step, *_ = times.join([], late + marks(len(done)), final=True)
    assert (step.index, step.duration) == (len(done), pytest.approx(0.047))


def test_a_program_without_a_loader_waits_for_no_data(times):
    (step,) = times.join([a_step(0, data_wait=None, loader_overhead=None)], marks(0), final=True)
    assert (step.data_wait, step.loader_overhead) == (None, None)
    assert sum(getattr(step, phase) or 0 for phase in PHASES) == pytest.approx(step.duration)


def test_a_step_of_which_something_was_carved_out_has_no_phases(times):
    """The GPU's segments hold the checkpoint too."""
    saved = a_step(0, tags=TAG_CHECKPOINT, checkpoint_save=0.004, duration=HOST - 0.004)
    first, second = times.join([saved, a_step(1)], marks(0) + marks(1), final=True)
    assert first == replace(saved, **dict.fromkeys(PHASES))
    assert second.duration == pytest.approx(0.047)


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_a_phase_the_host_did_not_show_is_part_of_the_rest(times, phase):
    """As in a compiled or replayed step."""
    (step,) = times.join([a_step(0, **{phase: None})], marks(0), final=True)
    assert getattr(step, phase) is None
    assert step.duration == pytest.approx(0.047)
    assert sum(getattr(step, phase) or 0 for phase in PHASES) == pytest.approx(step.duration)


def test_of_two_gpus_in_turns_the_one_that_computes_most_partitions_the_step(times):
    other = [mark._replace(b=1, a=mark.a // 2, start=mark.start - 1) for mark in marks(0)]
    other[0] = other[0]._replace(a=24_000_000)
    both = sorted(marks(0) + other, key=lambda mark: mark.start)
    (step,) = times.join([a_step(0)], both, final=True)
    assert (step.forward, step.backward, step.optimizer) == pytest.approx((0.010, 0.020, 0.005))
    assert step.duration == pytest.approx(0.047)


def test_a_gpu_with_a_gap_leaves_the_step_to_the_other(times):
    gap = [mark._replace(b=1, a=-1) for mark in marks(0)]
    (step,) = times.join([a_step(0)], gap + marks(0), final=True)
    assert step.forward == pytest.approx(0.010)


def test_a_step_may_end_where_the_program_says(times):
    said = [*marks(0), a_mark(0.0095, ring.MARK_STEP, 3_000_000)]
    (step,) = times.join([a_step(0)], said, final=True)
    assert step.duration == pytest.approx(0.050)


def test_steps_wait_for_the_gpu_in_their_order(times):
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


def test_a_stretch_without_marks_delays_but_loses_nothing(times):
    """Short steps are measured now and then."""
    done = times.join([a_step(index) for index in range(16)], marks(0) + marks(1))
    done += times.join([a_step(16), a_step(17)], marks(16, first=-1) + marks(17))
    done += times.join([], [], final=True)
    assert [step.index for step in done] == list(range(18))
    measured = [step.index for step in done if step.duration != HOST]
    assert measured == [0, 1, 17]


def test_steps_without_marks_do_not_wait_for_ever(times):
    """The marks were given up, or the GPU is lost."""
    done = times.join([a_step(0)], marks(0))
    for index in range(1, 2 * MOST_WAITING):
        done += times.join([a_step(index)], [])
    assert len(done) >= MOST_WAITING
    assert [step.index for step in done] == list(range(len(done)))
    done += times.join([], [], final=True)
    assert len(done) == 2 * MOST_WAITING
