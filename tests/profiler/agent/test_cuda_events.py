from types import SimpleNamespace

import pytest

from profiler.agent.hooks import cuda_events
from profiler.agent.hooks.cuda_events import FULL_RATE_STEP_NS, MOST_PENDING, SPARSE, Marks
from profiler.agent.ring import (
    GPU,
    MARK_BACKWARD_END,
    MARK_BACKWARD_START,
    MARK_FETCH_END,
    MARK_FETCH_START,
    MARK_OPTIMIZER_END,
    MARK_OPTIMIZER_START,
)

LONG = 10 * FULL_RATE_STEP_NS
SHORT = FULL_RATE_STEP_NS // 10


class Cuda:
    """A GPU that reaches each event `lag` ns after the host has recorded it, on the same clock."""

    def __init__(self):
        self.now = 1_000_000_000
        self.lag = 0
        self.initialized = True
        self.capturing = False
        self.broken = False
        self.made = 0

    def is_initialized(self):
        return self.initialized

    def is_current_stream_capturing(self):
        return self.capturing

    def Event(self, enable_timing):
        assert enable_timing
        self.made += 1
        return Event(self)


class Event:
    def __init__(self, cuda):
        self.cuda = cuda
        self.reached = None

    def record(self):
        if self.cuda.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        self.reached = self.cuda.now + self.cuda.lag

    def query(self):
        return self.reached <= self.cuda.now

    def elapsed_time(self, later):
        return (later.reached - self.reached) / 1e6


@pytest.fixture
def cuda(monkeypatch):
    fake = Cuda()
    monkeypatch.setattr(cuda_events, "clock", lambda: fake.now)
    return fake


@pytest.fixture
def agent(cuda):
    told = SimpleNamespace(torch=SimpleNamespace(cuda=cuda), events=[], given_up=[])
    told.put = told.events.append
    told.give_up = lambda source, error: told.given_up.append((source, str(error)))
    told.mark = Marks(told)
    return told


def segments(agent):
    """What has been put since the last call, as (code, GPU ns)."""
    taken = [(event[4], event[5]) for event in agent.events]
    assert all(event[1] == GPU and event[2] == event[3] for event in agent.events)
    agent.events.clear()
    return taken


def step(agent, *, backward=LONG // 2, optimizer=LONG // 2):
    agent.mark(MARK_BACKWARD_START)
    agent.torch.cuda.now += backward
    agent.mark(MARK_BACKWARD_END)
    agent.mark(MARK_OPTIMIZER_START)
    agent.torch.cuda.now += optimizer
    agent.mark(MARK_OPTIMIZER_END)


def test_segments_between_marks_arrive_in_order(cuda, agent):
    step(agent, backward=30_000_000, optimizer=10_000_000)
    assert segments(agent) == [
        (MARK_BACKWARD_START, -1),
        (MARK_BACKWARD_END, 30_000_000),
        (MARK_OPTIMIZER_START, 0),
        (MARK_OPTIMIZER_END, 10_000_000),
    ]
    cuda.now += 5_000_000
    step(agent, backward=20_000_000, optimizer=40_000_000)
    assert [elapsed for _, elapsed in segments(agent)] == [5_000_000, 20_000_000, 0, 40_000_000]


def test_a_mark_bears_the_hosts_time_at_which_it_was_made(cuda, agent):
    begin = cuda.now
    step(agent)
    assert [event[2] - begin for event in agent.events] == [0, LONG // 2, LONG // 2, LONG]


def test_what_the_gpu_has_not_reached_is_read_later(cuda, agent):
    cuda.lag = 2 * LONG
    step(agent)
    assert segments(agent) == []
    step(agent)
    step(agent)
    assert [elapsed for _, elapsed in segments(agent)] == [-1, LONG // 2, 0, LONG // 2, 0]


def test_events_are_used_again(cuda, agent):
    for _ in range(50):
        step(agent)
    assert cuda.made <= 6
    assert not agent.given_up


def test_short_steps_are_measured_now_and_then_and_whole(cuda, agent):
    """Two in a row: the first, whose beginning was not marked, says so; the second is whole."""
    step(agent)
    segments(agent)
    measured = []
    for _ in range(SPARSE * 10 + 1):
        step(agent, backward=SHORT // 2, optimizer=SHORT // 2)
        measured.append(segments(agent))
    told = [each for each in measured[1:] if each]  # the first still belongs to the long step before it
    assert len(told) == 2 * 10
    for first, second in zip(told[::2], told[1::2], strict=True):
        assert [elapsed for _, elapsed in first] == [-1, SHORT // 2, 0, SHORT // 2]
        assert [elapsed for _, elapsed in second] == [0, SHORT // 2, 0, SHORT // 2]


def test_steps_that_become_long_are_measured_all(cuda, agent):
    for _ in range(SPARSE + 5):
        step(agent, backward=SHORT // 2, optimizer=SHORT // 2)
    step(agent)
    segments(agent)
    step(agent)
    step(agent)
    assert [elapsed for _, elapsed in segments(agent)] == [-1, LONG // 2, 0, LONG // 2, 0, LONG // 2, 0, LONG // 2]


def test_while_a_graph_is_captured_nothing_is_recorded_and_the_gap_shows(cuda, agent):
    step(agent)
    segments(agent)
    cuda.capturing = True
    agent.mark(MARK_BACKWARD_START)
    cuda.now += LONG
    cuda.capturing = False
    agent.mark(MARK_BACKWARD_END)
    agent.mark(MARK_OPTIMIZER_END)
    assert segments(agent) == [(MARK_BACKWARD_END, -1), (MARK_OPTIMIZER_END, 0)]


def test_cuda_is_the_programs_to_initialise(cuda, agent):
    cuda.initialized = False
    step(agent)
    assert (cuda.made, segments(agent)) == (0, [])
    cuda.initialized = True
    step(agent)
    assert len(segments(agent)) == 4


def test_an_event_that_raises_takes_the_marks_out(cuda, agent):
    step(agent)
    marks = agent.mark
    cuda.broken = True
    agent.mark(MARK_FETCH_START)
    assert agent.mark is None
    ((source, message),) = agent.given_up
    assert source == "cuda_events"
    assert "illegal memory access" in message
    assert marks(MARK_FETCH_END) is None  # a caller that still holds them: nothing raises


def test_a_gpu_that_is_lost_fills_no_memory(cuda, agent):
    cuda.lag = 10**18
    for _ in range(MOST_PENDING):
        step(agent)
    assert cuda.made >= MOST_PENDING
    cuda.lag = 0
    for _ in range(3):  # it is back: the marks begin anew, after a gap
        cuda.now += 10**19
        step(agent)
    got = [elapsed for _, elapsed in segments(agent)]
    assert got.count(-1) <= 1
    assert len(agent.mark._pending) <= MOST_PENDING
