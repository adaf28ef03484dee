from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch

from profiler.agent.hooks import cuda_events
from profiler.agent.hooks.cuda_events import BURST, LOOK_NS, MOST_PENDING, PROBE_NS, SHARE, Marks, SeveralGpus, gpus_of
from profiler.agent.ring import (
    GPU,
    MARK_ALL_REACHED,
    MARK_BACKWARD_END,
    MARK_BACKWARD_START,
    MARK_FETCH_END,
    MARK_FETCH_START,
    MARK_FIRST,
    MARK_FORWARD_END,
    MARK_FORWARD_START,
    MARK_OPTIMIZER_END,
    MARK_OPTIMIZER_START,
    MARK_STEP,
)

LONG = 50_000_000
COST = 10_000
"""Cost of an event on a real GPU, in ns."""


class Cuda:
    """Simulated GPUs that reach each event `lag` ns after the host recorded it, on the host's clock."""

    def __init__(self):
        self.now = 1_000_000_000
        self.lag = 0
        self.busy_until = 0
        self.cost = 0
        self.initialized = True
        self.broken = False
        self.grad = True
        self.made = 0
        self.contexts = {0}
        self.device = 0

    def is_initialized(self):
        return self.initialized

    def current_device(self):
        return self.device

    def current_stream(self, device):
        assert device in self.contexts, "this would make a context"
        return Stream(device, self)

    def Event(self, enable_timing):
        assert enable_timing
        self.made += 1
        return Event(self)


class Stream(NamedTuple):
    device: int
    cuda: Cuda

    def query(self):
        return self.cuda.now >= self.cuda.busy_until


class Event:
    def __init__(self, cuda):
        self.cuda = cuda
        self.device = None
        self.reached = None

    def record(self, stream):
        if self.cuda.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        assert self.device in (None, stream.device), "an event stays with its device"
        self.cuda.now += self.cuda.cost
        self.device, self.reached = stream.device, self.cuda.now + self.cuda.lag

    def query(self):
        return self.reached <= self.cuda.now

    def elapsed_time(self, later):
        assert self.device == later.device
        return (later.reached - self.reached) / 1e6


@pytest.fixture
def cuda(monkeypatch):
    fake = Cuda()
    monkeypatch.setattr(cuda_events, "clock", lambda: fake.now)
    monkeypatch.setattr(cuda_events, "gpus_of", lambda torch, module: module.gpus)
    return fake


@pytest.fixture
def agent(cuda):
    c = SimpleNamespace(_cuda_hasPrimaryContext=lambda device: device in cuda.contexts)
    fake = SimpleNamespace(cuda=cuda, _C=c, is_grad_enabled=lambda: cuda.grad)
    stand_in = SimpleNamespace(torch=fake, events=[], given_up=[], capturing=False, attend=1, own_steps=False)
    stand_in.put = stand_in.events.append
    stand_in.give_up = stand_in.problem = lambda source, error: stand_in.given_up.append((source, error))
    stand_in.is_capturing = lambda: stand_in.capturing
    stand_in.mark = Marks(stand_in)
    return stand_in


class Model:
    """A stand-in for a model on the given GPUs; it can be weakly referenced."""

    def __init__(self, *gpus):
        self.gpus = set(gpus)


def segments(agent):
    """Return the segments recorded since the last call as (code, GPU ns), without MARK_FIRST."""
    taken = [(event[4], event[5]) for event in agent.events if event[4] != MARK_FIRST]
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


def test_mark_carries_its_host_time(cuda, agent):
    begin = cuda.now
    step(agent)
    assert [event[2] - begin for event in agent.events[1:]] == [0, LONG // 2, LONG // 2, LONG]


def test_events_not_yet_reached_are_read_later(cuda, agent):
    cuda.lag = 2 * LONG
    step(agent)
    assert segments(agent) == []
    step(agent)
    step(agent)
    assert [elapsed for _, elapsed in segments(agent)] == [-1, LONG // 2, 0, LONG // 2, 0]


def test_events_are_reused(cuda, agent):
    for _ in range(50):
        step(agent)
    assert cuda.made <= 6
    assert not agent.given_up


def test_number_of_events_is_bounded_without_an_optimizer(cuda, agent):
    """For example in an evaluation, a replayed graph or a compiled optimizer."""
    cuda.cost, cuda.lag = COST, 5_000_000
    made = []
    for _ in range(100_000):
        agent.mark(MARK_FORWARD_START)
        cuda.now += 500_000
        agent.mark(MARK_FORWARD_END)
        made.append(cuda.made)
    assert made[-1] == made[1_000] < 200


def test_loop_that_only_calls_step_has_whole_steps_and_few_events(cuda, agent):
    cuda.cost = COST
    for _ in range(1_000):
        agent.mark(MARK_FORWARD_START)
        cuda.now += LONG
        agent.mark(MARK_FORWARD_END)
        agent.mark(MARK_STEP)
    codes = [code for code, _ in segments(agent)]
    assert codes.count(MARK_STEP) == 1_000
    assert cuda.made < 10


def micro_steps(agent, count, forward, backward, optimizer):
    """Mark the phases of a step with `count` micro-batches."""
    for _ in range(count):
        for start, end, time in (
            (MARK_FETCH_START, MARK_FETCH_END, 0),
            (MARK_FORWARD_START, MARK_FORWARD_END, forward),
            (MARK_BACKWARD_START, MARK_BACKWARD_END, backward),
        ):
            agent.mark(start)
            agent.torch.cuda.now += time
            agent.mark(end)
    agent.mark(MARK_OPTIMIZER_START)
    agent.torch.cuda.now += optimizer
    agent.mark(MARK_OPTIMIZER_END)


@pytest.mark.parametrize(("micro", "microseconds"), [(8, 5_000), (1, 500), (8, 50_000), (1, 100)])
def test_marks_cost_a_bounded_share_for_any_number_per_step(cuda, agent, micro, microseconds):
    """Eight micro-batches in 5 ms make 50 marks."""
    cuda.cost = COST
    work = microseconds * 1_000 // (2 * micro)
    steps = 20_000_000 // microseconds
    began = cuda.now
    for _ in range(steps):
        micro_steps(agent, micro, work, work, 0)
    plain = steps * 2 * micro * work
    assert cuda.now - began - plain < 1.5 * SHARE * plain
    whole = [elapsed for _, elapsed in segments(agent)]
    assert len(whole) > 50 * micro


def test_marks_that_are_cheap_for_the_step_never_pause(cuda, agent):
    cuda.cost = COST
    for _ in range(500):
        step(agent)
    assert len(segments(agent)) == 500 * 4


def test_after_a_pause_whole_steps_are_measured(cuda, agent):
    cuda.cost = COST
    for _ in range(2_000):
        step(agent, backward=200_000, optimizer=100_000)
    bursts, measured = [], segments(agent)
    for code, elapsed in measured[1:]:
        if elapsed < 0:
            assert code == MARK_OPTIMIZER_END, "a pause ends with a step"
            bursts.append([])
        elif bursts:
            bursts[-1].append(code)
    whole = [MARK_BACKWARD_START, MARK_BACKWARD_END, MARK_OPTIMIZER_START, MARK_OPTIMIZER_END]
    bursts = [burst for burst in bursts if burst]  # an empty burst is a step's end within a pause
    assert len(bursts) > 3
    assert all(burst == whole * (BURST - 1) for burst in bursts[:-1])


def test_pause_ends_with_the_first_step_once_due(cuda, agent):
    pause(agent)
    cuda.now = agent.mark.due - 1
    step(agent, backward=0, optimizer=0)
    assert not agent.mark.on
    cuda.now = agent.mark.due
    agent.mark(MARK_FORWARD_START)
    assert not agent.mark.on
    agent.mark(MARK_OPTIMIZER_END)
    assert agent.mark.on


def test_graph_capture_is_not_recorded_and_shows_as_a_gap(cuda, agent):
    step(agent)
    segments(agent)
    agent.capturing = True
    agent.mark(MARK_BACKWARD_START)
    cuda.now += LONG
    agent.capturing = False
    agent.mark(MARK_BACKWARD_END)
    agent.mark(MARK_OPTIMIZER_END)
    assert segments(agent) == [(MARK_BACKWARD_END, -1), (MARK_OPTIMIZER_END, 0)]


def test_marks_do_not_initialize_cuda(cuda, agent):
    cuda.initialized = False
    step(agent)
    assert (cuda.made, segments(agent)) == (0, [])
    cuda.initialized = True
    cuda.now += LOOK_NS
    agent.mark(MARK_OPTIMIZER_END)
    step(agent)
    assert len(segments(agent)) == 5


def test_cpu_training_is_checked_rarely(cuda, agent):
    cuda.initialized = False
    step(agent)
    assert not agent.mark.on
    assert agent.mark.due == cuda.now + LOOK_NS


def test_marks_are_made_on_the_device_of_the_model(cuda, agent):
    """The current device is another one, on which the program has no context."""
    cuda.contexts = {1}
    step(agent)
    assert segments(agent) == []
    model = Model(1)
    for _ in range(2):
        agent.mark(MARK_FORWARD_START, model)
        agent.mark(MARK_FORWARD_END)
        step(agent)
    assert {event[6] for event in agent.events[1:]} == {1}
    assert [elapsed for _, elapsed in segments(agent)].count(-1) == 1


def test_models_on_separate_gpus_have_separate_marks(cuda, agent):
    cuda.contexts = {0, 1}
    models = Model(0), Model(1)
    for _ in range(3):
        for device, model in enumerate(models):
            agent.mark(MARK_FORWARD_START, model)
            cuda.now += (device + 1) * 1_000_000
            agent.mark(MARK_FORWARD_END)
            agent.mark(MARK_OPTIMIZER_END)
    assert not agent.given_up
    own = {device: [event[5] for event in agent.events if event[6] == device] for device in (0, 1)}
    assert own[0] == [-1, 1_000_000, 0, 2_000_000, 1_000_000, 0, 2_000_000, 1_000_000, 0]
    assert own[1] == [-1, 2_000_000, 0, 1_000_000, 2_000_000, 0, 1_000_000, 2_000_000, 0]


def test_model_split_over_gpus_has_only_step_ends_marked(cuda, agent):
    """They are marked on one GPU, from end to end: no single GPU sees a whole phase."""
    cuda.contexts = {0, 1}
    split = Model(0, 1)
    for _ in range(3):
        agent.mark(MARK_FORWARD_START, split)
        agent.mark(MARK_FORWARD_END)
        step(agent)
    ((source, error),) = agent.given_up
    assert (source, type(error)) == ("cuda_events", SeveralGpus)
    assert segments(agent) == [(MARK_OPTIMIZER_END, -1), (MARK_OPTIMIZER_END, LONG), (MARK_OPTIMIZER_END, LONG)]


@pytest.mark.parametrize(("lag", "is_all"), [(0, True), (10 * LONG, False)])
def test_end_reads_reached_events_without_waiting(cuda, agent, lag, is_all):
    step(agent)
    cuda.lag = lag
    agent.mark(MARK_FORWARD_START, Model(0))
    segments(agent)
    agent.mark.end()
    codes = [event[4] for event in agent.events]
    assert codes == ([MARK_FORWARD_START, MARK_ALL_REACHED] if is_all else [])


@pytest.mark.parametrize(("left", "codes"), [(0, [MARK_ALL_REACHED]), (1, [])])
def test_work_launched_in_a_pause_is_reached_once_its_stream_is_idle(cuda, agent, left, codes):
    pause(agent)
    segments(agent)
    cuda.busy_until = cuda.now + left
    agent.mark.end()
    assert [event[4] for event in agent.events] == codes


def test_work_left_on_another_stream_in_a_pause_is_unknown(cuda, agent):
    pause(agent)
    segments(agent)
    cuda.current_stream = lambda device: Stream(device, None)
    agent.mark.end()
    assert agent.events == []


def ends(agent, count, each):
    """Mark the ends of `count` steps of `each` ns, launched in a pause."""
    for _ in range(count):
        agent.torch.cuda.now += each
        agent.mark(MARK_OPTIMIZER_END)


def test_pause_marks_every_step_end_while_gpu_is_a_step_behind(cuda, agent):
    cuda.lag = LONG
    pause(agent)
    cuda.cost = 0
    ends(agent, 20, 10_000)
    assert agent.mark.behind
    cuda.now += LONG
    agent.mark.end()
    *_, reached = agent.events
    assert reached[4] == MARK_ALL_REACHED
    assert [(event[4], event[5], event[7]) for event in agent.events[-20:-1]] == [(MARK_OPTIMIZER_END, -1, 10_000)] * 19


def test_pause_marks_few_steps_while_gpu_keeps_up(cuda, agent):
    pause(agent)
    agent.mark.due = cuda.now + 10 * PROBE_NS
    before = len(agent.events)
    ends(agent, 1000, PROBE_NS // 200)
    assert not agent.mark.behind
    assert 4 <= len(agent.events) - before <= 7


def test_pause_uses_step_ends_declared_by_the_program(cuda, agent):
    agent.own_steps = True
    pause(agent)
    before = len(agent.events)
    cuda.lag = LONG
    ends(agent, 3, 1)
    agent.mark(MARK_STEP)
    cuda.now += LONG
    agent.mark.end()
    assert [event[4] for event in agent.events[before:]] == [MARK_STEP, MARK_ALL_REACHED]


def test_pause_marks_no_steps_of_models_on_separate_gpus(cuda, agent):
    """Forward passes are not seen in a pause, so it is unknown on which GPU a step ends."""
    cuda.contexts, cuda.cost = {0, 1}, COST
    models = Model(0), Model(1)
    while agent.mark.on:
        for model in models:
            agent.mark(MARK_FORWARD_START, model)
            agent.mark(MARK_OPTIMIZER_END)
    before = len(agent.events)
    cuda.lag = LONG
    ends(agent, 3, 1)
    assert len(agent.events) == before


def test_pause_reads_no_event_during_graph_capture(cuda, agent):
    pause(agent)
    before = len(agent.events)
    agent.capturing = True
    ends(agent, 3, 1)
    assert len(agent.events) == before


def test_first_mark_after_a_pause_carries_time_since_the_last(cuda, agent):
    pause(agent)
    last = agent.events[-1]
    segments(agent)
    cuda.now += LONG
    agent.mark(MARK_OPTIMIZER_END)
    ((*_, elapsed, _, apart),) = agent.events
    assert (elapsed, apart) == (-1, agent.events[0][2] - last[2])


def test_end_reads_no_event_during_graph_capture(cuda, agent):
    step(agent)
    segments(agent)
    agent.capturing = True
    agent.mark.end()
    assert agent.events == []


def pause(agent):
    agent.torch.cuda.cost = COST
    while agent.mark.on:
        step(agent, backward=1_000, optimizer=1_000)


def test_a_model_split_over_gpus_is_seen_in_a_pause_too(cuda, agent):
    pause(agent)
    agent.mark(MARK_FORWARD_START, Model(0, 1))
    assert [type(error) for _, error in agent.given_up] == [SeveralGpus]


@pytest.mark.parametrize("gpus", [(), (0,)])
def test_pause_ends_when_another_model_is_called(cuda, agent, gpus):
    model = Model(*gpus)
    pause(agent)
    agent.mark(MARK_FORWARD_START, model)
    assert agent.attend == 0, "else the end of this step is not attended to"
    step(agent, backward=1_000, optimizer=1_000)
    assert agent.mark.on
    pause(agent)
    agent.mark(MARK_FORWARD_START, model)
    step(agent, backward=1_000, optimizer=1_000)
    assert not agent.mark.on


def pass_through(agent, *models, grad=True):
    agent.torch.cuda.grad = grad
    for model in models:
        agent.mark(MARK_FORWARD_START, model)
        agent.mark(MARK_FORWARD_END)


def test_models_on_two_gpus_sharing_a_backward_pass_have_no_marks(cuda, agent):
    """Pipeline stages in one process: the last GPU sees neither pass as a whole."""
    cuda.contexts = {0, 1}
    pass_through(agent, Model(0), Model(1))
    assert not agent.given_up
    agent.mark(MARK_BACKWARD_START)
    assert [type(error) for _, error in agent.given_up] == [SeveralGpus]


def test_separately_trained_model_on_another_gpu_keeps_marks(cuda, agent):
    """For example a teacher, an evaluation on a separate GPU, or models that take turns."""
    cuda.contexts = {0, 1}
    teacher, model = Model(0), Model(1)
    for _ in range(3):
        pass_through(agent, teacher, grad=False)
        pass_through(agent, model)
        step(agent)
        pass_through(agent, teacher)
        agent.mark(MARK_STEP)
        pass_through(agent, model)
        agent.mark(MARK_BACKWARD_START)
        agent.mark(MARK_BACKWARD_END)
        pass_through(agent, teacher)
        step(agent)
    assert not agent.given_up


def test_a_model_on_the_host_is_marked_on_the_current_device(cuda, agent):
    """For example a model whose parameters are offloaded between steps."""
    model = Model()
    agent.mark(MARK_FORWARD_START, model)
    model.gpus = {0}
    agent.mark(MARK_FORWARD_START, model)
    assert cuda.made == 2


def test_device_is_found_without_calling_model_code():
    class Odd(torch.nn.Linear):
        def parameters(self, recurse=True):
            raise AssertionError("the program's code was called")

        named_parameters = modules = children = __iter__ = __len__ = __eq__ = __hash__ = parameters

        def __getattr__(self, name):
            raise AssertionError(name)

    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *args, **kwargs):
            raise AssertionError("the program's code was called")

    odd = object.__new__(Odd)
    buffer = torch.ones(2).as_subclass(Loud)
    odd.__dict__.update(_parameters={"weight": torch.nn.Parameter(torch.ones(2))}, _buffers={"b": buffer}, _modules={})
    odd.__dict__["_modules"]["inner"] = odd
    assert gpus_of(torch, odd) == set()


def test_event_that_raises_removes_the_marks(cuda, agent):
    step(agent)
    marks = agent.mark
    cuda.broken = True
    agent.mark(MARK_FETCH_START)
    assert agent.mark is None
    ((source, error),) = agent.given_up
    assert (source, type(error)) == ("cuda_events", RuntimeError)
    assert marks(MARK_FETCH_END) is None  # a caller that still holds the marks gets no exception


def test_lost_gpu_does_not_fill_memory(cuda, agent):
    cuda.lag = 10**18
    for _ in range(MOST_PENDING):
        step(agent)
    assert MOST_PENDING <= cuda.made <= MOST_PENDING + 10
    cuda.lag = 0
    for _ in range(3):  # the GPU is back: marks resume after a gap
        cuda.now += 10**19
        step(agent)
    got = [elapsed for _, elapsed in segments(agent)]
    assert got.count(-1) <= 1
