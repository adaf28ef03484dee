import contextlib
import itertools
import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from programs import PATIENCE, TORCH

from profiler.agent import window as module
from profiler.agent.session import Agent
from profiler.agent.window import FEW, FIRST_COST, FIRST_SLOWER, HALF, MOST_STEPS, STEPS, UNSETTLED_AFTER, Windows
from profiler.recorder.windows import parse

SECOND = 1_000_000_000
ONES = torch.ones(4, 4)
WATCHED = (
    torch.autograd.profiler.profile,
    torch.autograd.profiler.emit_nvtx,
    torch.autograd.profiler.emit_itt,
    torch.profiler.profile,
)


def agent_of(torch, facts, folder, budget=1.0, **more):
    """Return the part of an agent that Windows uses."""

    def is_capturing():
        return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()

    settings = {"windows": str(folder), "budget": budget}
    known = {"settings": settings, "is_capturing": is_capturing, "uses_graphs": False, "mark": None, **more}
    agent = SimpleNamespace(torch=torch, uninstall=[], fact=lambda kind, body: facts.append((kind, body)), **known)
    agent.remove = partial(Agent.remove, agent)
    return agent


class Loop:
    """A loop on a simulated clock, with a little real work for the profiler in each step."""

    def __init__(self, folder, budget, tick=0.0, torch=torch):
        self.now = self.taken = 0
        self.tick = tick
        self.facts = []
        module.clock = self.clock
        self.agent = agent_of(torch, self.facts, folder, budget)
        self.windows = Windows(self.agent, lambda: True)
        self.x = ONES.clone()

    def clock(self):
        self.now += int(self.tick * SECOND)  # the cost of reading the clock (and of the work before)
        return self.now

    def step(self, seconds=0.1):
        """Take a step; return whether a window is open as the next one begins."""
        self.x.mm(self.x)
        self.now += int(seconds * SECOND)
        self.taken += 1
        return self.windows.at_step_boundary(self.now, self.taken)

    def steps(self, count, seconds=0.1):
        return [self.step(seconds) for _ in range(count)]

    def until_open(self, seconds=0.1):
        for _ in range(500):
            if self.step(seconds):
                return
        raise AssertionError("no window was opened")

    def facts_of(self, kind):
        return [body for each, body in self.facts if each == kind]


@pytest.fixture(autouse=True)
def _constructors_as_they_were():
    before = [profiler.__init__ for profiler in WATCHED]
    yield
    for profiler, init in zip(WATCHED, before, strict=True):
        profiler.__init__ = init


@pytest.fixture(autouse=True)
def _steps_as_fast_as_ever(monkeypatch):
    """Assume no cost of the first window beyond its start-up; other tests cover that cost."""
    monkeypatch.setattr(module, "FIRST_SLOWER", dict.fromkeys(FIRST_SLOWER, 0.0))


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "clock", None)  # each loop sets its own
    loops = []

    def loop(*args, **kwargs):
        loops.append(Loop(tmp_path, *args, **kwargs))
        return loops[-1]

    yield loop
    for each in loops:
        each.windows.close()


def test_a_window_opens_once_settled_and_holds_three_steps(make, tmp_path):
    loop = make(budget=1.0)

    opened = loop.steps(40)

    first = 2 * HALF + 1
    assert [index + 1 for index, is_open in enumerate(opened) if is_open] == [first, first + 1, first + 2]
    (fact,) = loop.facts_of("window")
    assert fact["path"] == str(tmp_path / f"window-{os.getpid()}-0.json")
    assert (fact["first_step"], fact["steps"], fact["device"]) == (first, STEPS, "cpu")
    assert fact["end_ns"] - fact["start_ns"] == STEPS * SECOND // 10
    window, rows, *_ = parse(Path(fact["path"]), pid=1, position=0, start=0.0, steps=0, cost=0.0, device="cpu")
    assert window.steps == STEPS
    assert {row.name: row.calls for row in rows}["aten::mm"] == STEPS


def test_first_window_waits_until_budget_covers_its_expected_cost(make):
    loop = make(budget=0.001)

    loop.until_open()

    assert loop.now >= FIRST_COST["cpu"] / 0.001 * SECOND
    assert loop.now < (FIRST_COST["cpu"] / 0.001 + 3) * SECOND


def test_first_window_is_one_step_on_a_small_budget(make, monkeypatch):
    monkeypatch.setattr(module, "FIRST_SLOWER", FIRST_SLOWER)
    loop = make(budget=0.05)

    loop.until_open()
    opened_at = loop.now / SECOND
    loop.steps(STEPS)

    assert opened_at >= (FIRST_COST["cpu"] + 0.1 * FIRST_SLOWER["cpu"]) / 0.05
    assert opened_at < (FIRST_COST["cpu"] + STEPS * 0.1 * FIRST_SLOWER["cpu"]) / 0.05
    assert [fact["steps"] for fact in loop.facts_of("window")] == [1]


def test_later_windows_have_full_length_once_cost_is_known(make):
    loop = make(budget=0.05, tick=0.02)

    for _ in range(3000):
        loop.step()

    assert [fact["steps"] for fact in loop.facts_of("window")][2:5:2] == [STEPS, STEPS]


def test_every_second_window_is_one_step_with_shapes(make):
    loop = make(budget=1.0)

    loop.steps(200)

    facts = loop.facts_of("window")
    dims = ['"Input Dims"' in Path(fact["path"]).read_text() for fact in facts]
    assert dims[:4] == [False, True, False, True]
    assert [fact["steps"] for fact in facts[:4]] == [STEPS, 1, STEPS, 1]


def test_first_window_with_shapes_waits_for_its_expected_cost(make, monkeypatch):
    monkeypatch.setattr(module, "SHAPES_SLOWER", 100.0)
    loop = make(budget=0.5, tick=0.02)

    while len(loop.facts_of("window")) < 2:
        loop.step()

    first, second = loop.facts_of("window")
    assert second["start_ns"] / SECOND > (first["cost_s"] + 100 * first["cost_s"] / STEPS) / 0.5


def test_windows_repeat_and_never_exceed_the_budget(make):
    loop = make(budget=0.02, tick=0.02)  # between two reads of the clock: opening and saving cost 20 ms each

    closed = False
    for _ in range(3000):
        before = closed
        closed = not loop.step()
        if closed and not before:
            assert loop.windows.cost <= 0.02 * loop.now / SECOND

    costs = [fact["cost_s"] for fact in loop.facts_of("window")]
    assert len(costs) > 3
    assert sum(costs) == pytest.approx(loop.windows.cost)
    assert min(costs) >= 0.04
    starts = [fact["start_ns"] for fact in loop.facts_of("window")]
    assert all(later > earlier * 1.4 for earlier, later in itertools.pairwise(starts))


def test_slower_steps_count_as_cost(make):
    loop = make(budget=1.0)

    loop.until_open(0.1)
    loop.steps(STEPS, 0.15)

    assert loop.windows.cost == pytest.approx(STEPS * 0.05)


@pytest.mark.parametrize("call", ["open", "unlink"])
def test_a_file_server_that_stalls_counts_as_cost(make, monkeypatch, call):
    loop, real = make(budget=1.0), getattr(os, call)

    def slow(*args):
        loop.now += 5 * SECOND
        return real(*args)

    loop.until_open()
    monkeypatch.setattr(module.posix, call, slow)
    loop.steps(STEPS)
    monkeypatch.undo()

    assert loop.windows.cost == pytest.approx({"open": 10.0, "unlink": 5.0}[call], abs=0.1)


def test_no_budget_no_windows(make):
    loop = make(budget=0.0)

    assert not any(loop.steps(200, 10.0))


@pytest.mark.parametrize(("seconds", "steps"), [(0.001, 5), (0.00001, MOST_STEPS), (1.0, 3), (2.0, 2)])
def test_window_length_depends_on_step_time(make, seconds, steps):
    loop = make(budget=1.0)
    loop.now += 3600 * SECOND

    loop.until_open(seconds)
    loop.steps(MOST_STEPS, seconds)

    assert [fact["steps"] for fact in loop.facts_of("window")] == [steps]


def test_steps_too_long_for_a_window_are_reported(make):
    loop = make(budget=1.0)

    assert not any(loop.steps(60, 6.0))
    (problem,) = loop.facts_of("problem")
    assert "6.0 s" in problem["message"]


def test_steps_with_very_many_events_get_shorter_windows(make, monkeypatch):
    monkeypatch.setattr("profiler.agent.window.MOST_EVENTS", 600)
    loop = make(budget=1.0)
    loop.until_open()
    for _ in range(STEPS):
        for _ in range(60):
            loop.x.mm(loop.x)
        loop.step()

    for _ in range(2):
        loop.until_open()
        loop.steps(STEPS)

    first, _, third = loop.facts_of("window")
    assert first["steps"] == STEPS
    assert 0 < third["steps"] < STEPS


def test_window_waits_for_the_loop_to_settle(make):
    loop = make(budget=1.0)
    seconds = 1.0
    opened = []
    for _ in range(UNSETTLED_AFTER + 2 * HALF):
        opened.append(loop.step(seconds))
        seconds *= 0.98

    assert not any(opened[: UNSETTLED_AFTER - 1])
    assert any(opened)


def test_the_programs_profiler_takes_over_at_once(make, tmp_path):
    loop = make(budget=1.0)
    loop.until_open()

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as theirs:
        opened = loop.steps(50)

    assert {event.key: event.count for event in theirs.key_averages()}["aten::mm"] == 50
    assert not any(opened)
    assert not any(loop.steps(200))
    assert loop.windows.program_profiler
    assert loop.facts_of("window") == loop.facts_of("problem") == []
    assert list(tmp_path.iterdir()) == []


def test_program_profiler_is_complete_after_a_window(make):
    loop = make(budget=1.0)
    loop.steps(40)
    assert len(loop.facts_of("window")) == 1

    with torch.autograd.profiler.profile() as theirs:
        loop.steps(5)

    assert {event.key: event.count for event in theirs.key_averages()}["aten::mm"] == 5


def test_scheduled_profiler_prevents_windows_once_constructed(make):
    loop = make(budget=1.0)
    seen = []
    schedule = torch.profiler.schedule(wait=30, warmup=2, active=3, repeat=1)

    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule, on_trace_ready=lambda p: seen.append(p)
    ) as theirs:
        for _ in range(40):
            assert not loop.step()
            theirs.step()

    assert len(seen) == 1
    assert {event.key: event.count for event in theirs.key_averages()}["aten::mm"] == 3


def test_disabled_profiler_does_not_prevent_windows(make):
    loop = make(budget=1.0)

    with torch.autograd.profiler.profile(enabled=False):
        loop.until_open()

    assert not loop.windows.program_profiler


def test_profiler_constructed_before_our_hooks_prevents_windows(make):
    theirs = torch.autograd.profiler.profile()
    loop = make(budget=1.0)
    with theirs:
        assert not any(loop.steps(100))

    assert loop.windows.program_profiler
    loop.until_open()


def test_a_failure_ends_windows_and_nothing_else(make, tmp_path, capfd):
    loop = make(budget=1.0)
    loop.windows._folder = str(tmp_path / "missing")

    opened = loop.steps(300)

    assert sum(opened) == STEPS
    (problem,) = loop.facts_of("problem")
    assert problem["source"] == "windows"
    assert "FileNotFoundError" in problem["message"]
    assert capfd.readouterr() == ("", "")
    with torch.profiler.profile() as theirs:  # our profiler no longer records
        loop.step()
    assert {event.key: event.count for event in theirs.key_averages()}["aten::mm"] == 1


def test_failure_to_write_facts_does_not_reach_the_program(make):
    loop = make(budget=1.0)

    def broken(kind, body):
        raise OSError("no space left on device")

    loop.agent.fact = broken

    assert sum(loop.steps(300)) == STEPS


def test_closing_keeps_the_whole_steps_of_an_open_window(make):
    loop = make(budget=1.0)
    loop.until_open()
    loop.steps(2)
    loop.x.mm(loop.x)

    loop.windows.close()

    (fact,) = loop.facts_of("window")
    assert fact["steps"] == 2
    window, rows, *_ = parse(Path(fact["path"]), pid=1, position=0, start=0.0, steps=0, cost=0.0)
    assert window.steps == 2
    assert {row.name: row.calls for row in rows}["aten::mm"] == 2
    assert not any(loop.steps(200))


def test_closing_drops_a_window_without_a_whole_step(make, tmp_path):
    loop = make(budget=1.0)
    loop.until_open()

    loop.windows.close()
    loop.windows.close()

    assert loop.facts == []
    assert list(tmp_path.iterdir()) == []


def test_step_that_takes_too_long_ends_its_window(make):
    loop = make(budget=1.0)
    loop.until_open()
    loop.step()
    loop.windows.at_fetch(loop.now + SECOND)
    assert loop.facts_of("window") == []

    loop.windows.at_fetch(loop.now + 60 * SECOND)

    assert [fact["steps"] for fact in loop.facts_of("window")] == [1]


def test_another_thread_cannot_end_a_window(make):
    loop = make(budget=1.0)
    loop.until_open()

    def elsewhere():
        for _ in range(10):
            loop.windows.at_step_boundary(loop.now, loop.taken)
        loop.windows.at_fetch(loop.now + 60 * SECOND)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()

    assert loop.facts == []
    assert loop.steps(STEPS) == [True] * (STEPS - 1) + [False]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python 3.12 warns about any fork with threads
@pytest.mark.process
def test_forked_child_opens_no_windows_and_leaves_the_parents_open(make):
    loop = make(budget=1.0)
    loop.until_open()

    child = os.fork()
    if child == 0:
        loop.windows.after_fork()
        opened = any(loop.steps(5)) or any(loop.steps(100))
        loop.windows.close()
        os._exit(1 if opened or loop.facts else 0)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    loop.steps(STEPS)
    assert [fact["steps"] for fact in loop.facts_of("window")] == [STEPS]


class StubCuda:
    """The part of torch that Windows uses, with a GPU; `calls` lists what was called."""

    def __init__(self):
        self.calls = []
        self.capturing = False
        self.idle = True
        self.asked = lambda: None
        """Called when the state of the GPU is queried."""

        def call(name):
            return lambda *given: self.calls.append(name)

        self.version = SimpleNamespace(cuda="12.8")
        self.free = 8 << 30
        self.cuda = SimpleNamespace(
            is_initialized=lambda: True,
            mem_get_info=lambda device: (self.free, 80 << 30),
            is_current_stream_capturing=lambda: self.capturing,
            current_stream=lambda: SimpleNamespace(query=self._query),
        )
        self.profiler = SimpleNamespace(profile=type("profile", (), {}))
        names = ("profile", "emit_nvtx", "emit_itt")
        self.autograd = SimpleNamespace(
            profiler=SimpleNamespace(**{name: type(name, (), {}) for name in names}),
            ProfilerActivity=SimpleNamespace(CPU="cpu", CUDA="cuda"),
            ProfilerState=SimpleNamespace(KINETO="kineto"),
            ProfilerConfig=lambda *given: given,
            _supported_activities=lambda: {"cpu", "cuda"},
            _prepare_profiler=lambda config, activities: self.calls.append(sorted(activities)),
            _enable_profiler=call("enable"),
            _disable_profiler=self._disable,
        )
        self._C = SimpleNamespace(
            _autograd=SimpleNamespace(_profiler_enabled=lambda: False),
            _profiler=SimpleNamespace(
                _ExperimentalConfig=call("config"), _RecordFunctionFast=lambda name: contextlib.nullcontext()
            ),
        )

    def _query(self):
        self.calls.append("query")
        self.asked()
        return self.idle

    def _disable(self):
        self.calls.append("disable")
        return SimpleNamespace(save=lambda path: Path(path).write_text("{}"))


def test_cuda_window_has_lead_in_step_and_waits_for_gpu_at_its_end(make):
    cuda = StubCuda()
    loop = make(budget=1.0, torch=cuda)

    loop.until_open()
    assert cuda.calls == ["config", ["cpu", "cuda"], "enable"]
    loop.steps(STEPS)
    cuda.idle = False
    cuda.asked = lambda: setattr(cuda, "idle", cuda.calls.count("query") == 3)
    loop.steps(1)

    assert cuda.calls[3:] == ["query", "query", "query", "disable"]
    (fact,) = loop.facts_of("window")
    assert (fact["device"], fact["steps"]) == ("cuda", STEPS + 1)


def test_wait_for_gpu_blocked_on_another_rank_is_bounded(make):
    cuda = StubCuda()
    loop = make(budget=1.0, torch=cuda)
    loop.until_open()
    cuda.idle = False
    cuda.asked = lambda: setattr(loop, "now", loop.now + SECOND // 4)

    loop.steps(STEPS + 1)

    assert cuda.calls.count("query") >= 4
    assert cuda.calls[-1] == "disable"
    assert loop.facts_of("window") == loop.facts_of("problem") == []


@pytest.fixture
def _as_slow_as_feared(monkeypatch):
    monkeypatch.setattr(module, "FIRST_SLOWER", FIRST_SLOWER)


@pytest.mark.usefixtures("_as_slow_as_feared")
@pytest.mark.parametrize("seconds", [0.001, 0.01, 0.1, 0.5, 1.0, 3.0, 10.0])
def test_first_cuda_window_opens_within_ten_seconds_or_22_steps(make, seconds):
    """At the default budget, and a useful one: at least one whole step, or a part of a long one."""
    loop = make(budget=0.01, torch=StubCuda())

    loop.until_open(seconds)

    assert loop.now <= max(10.0, (2 * HALF + 2) * seconds) * SECOND
    loop.steps(STEPS + 10, seconds)
    (fact,) = loop.facts_of("window")
    assert fact["steps"] >= 1
    recorded = (fact["end_ns"] - fact["start_ns"]) / SECOND
    assert recorded <= max(2.0, seconds)
    assert loop.windows.state["reason"] is None


@pytest.mark.usefixtures("_as_slow_as_feared")
def test_first_cuda_window_may_exceed_the_accrued_budget(make):
    loop = make(budget=0.01, torch=StubCuda())

    loop.until_open(0.1)
    loop.steps(STEPS + 10, 0.1)

    (fact,) = loop.facts_of("window")
    assert fact["steps"] == STEPS + 1


@pytest.mark.usefixtures("_as_slow_as_feared")
@pytest.mark.parametrize("seconds", [1.0, 3.0, 10.0])
def test_on_cuda_a_run_of_few_long_steps_gets_a_window(make, seconds):
    loop = make(budget=0.01, torch=StubCuda())

    loop.until_open(seconds)

    assert loop.now <= max(10.0 + seconds, (FEW + 2) * seconds) * SECOND
    loop.steps(2, seconds)
    assert loop.facts_of("window")[0]["steps"] >= 1


def test_uneven_long_cuda_steps_delay_the_window(make):
    """For example while torch.compile still compiles."""
    loop = make(budget=0.01, torch=StubCuda())

    assert not any(loop.step(seconds) for seconds in (1.0, 3.0) * 6)


def test_short_cuda_steps_must_settle_even_after_a_slow_start(make):
    loop = make(budget=0.01, torch=StubCuda())
    loop.now += 60 * SECOND

    assert not any(loop.step(0.1) for _ in range(2 * HALF - 1))


def test_cuda_loop_that_never_settles_gets_a_window_within_60_steps(make):
    """For example a loop of 60 to 100 steps with other work on the machine."""
    loop, seconds = make(budget=0.01, torch=StubCuda()), 0.1
    opened = []
    for _ in range(60):
        opened.append(loop.step(seconds))
        seconds *= 0.98
    assert any(opened)


def test_long_step_is_recorded_in_part_up_to_a_fetch(make):
    """Sixteen micro-batches of a quarter of a second: the window ends at a fetch."""
    loop = make(budget=0.01, torch=StubCuda())
    loop.until_open(4.0)
    for _ in range(16):
        loop.now += SECOND // 4
        loop.windows.at_fetch(loop.now)
    (fact,) = loop.facts_of("window")
    assert fact["share"] == pytest.approx((fact["end_ns"] - fact["start_ns"]) / SECOND / 4.0)
    assert 1.5 / 4.0 < fact["share"] < 2.0 / 4.0


def test_windows_of_long_steps_count_only_what_they_record(make):
    """Batches are fetched as each step of 2.2 s begins, also in later windows, which may hold two steps."""
    loop = make(budget=1.0, torch=StubCuda())
    for _ in range(200):
        loop.step(2.2)
        loop.windows.at_fetch(loop.now + SECOND // 100)
    facts = loop.facts_of("window")
    assert len(facts) > 3
    for fact in facts:
        recorded = (fact["end_ns"] - fact["start_ns"]) / SECOND
        assert fact["steps"] * fact["share"] * 2.2 == pytest.approx(recorded, rel=0.02)


def test_long_step_is_recorded_once_the_gpu_is_idle(make):
    """There is no lead-in step."""
    cuda = StubCuda()
    loop = make(budget=0.01, torch=cuda)
    cuda.idle = False
    cuda.asked = lambda: setattr(cuda, "idle", cuda.calls.count("query") == 3)
    loop.until_open(1.0)
    assert cuda.calls == ["query", "query", "query", "config", ["cpu", "cuda"], "enable"]
    cuda.idle, cuda.asked = True, lambda: None
    assert not loop.step(1.0)
    assert [fact["steps"] for fact in loop.facts_of("window")] == [1]


def test_gpu_that_is_never_idle_gets_no_window_and_program_continues(make):
    cuda = StubCuda()
    loop = make(budget=0.01, torch=cuda)
    cuda.idle = False
    cuda.asked = lambda: setattr(loop, "now", loop.now + SECOND // 4)
    assert not any(loop.steps(30, 1.0))
    assert "enable" not in cuda.calls
    assert loop.facts_of("problem") == []


def test_cupti_startup_is_counted_separately(make):
    """It happens once, and does not predict the cost of the next window."""
    cuda = StubCuda()
    loop = make(budget=0.01, torch=cuda)
    cuda.autograd._enable_profiler = lambda config, activities: setattr(loop, "now", loop.now + 3 * SECOND)
    loop.until_open()
    cuda.autograd._enable_profiler = lambda config, activities: None
    loop.steps(STEPS + 1)
    (fact,) = loop.facts_of("window")
    assert fact["opening_s"] == pytest.approx(3.0)
    assert fact["cost_s"] >= 3.0
    assert loop.windows.cost >= 3.0
    loop.steps(200)
    assert len(loop.facts_of("window")) > 1, "the second is not held back by what the first cost once"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"environment": "NSYS_PROFILING_SESSION_ID"}, "other_tool"),
        ({"environment": "CUDA_INJECTION64_PATH"}, "other_tool"),
        ({"environment": "KINETO_USE_DAEMON"}, "kineto_daemon"),
        ({"free": 900 << 20}, "memory"),
        ({"cuda": "11.8"}, "cuda_graphs"),
    ],
)
def test_harmful_window_is_skipped_and_the_reason_is_kept(tmp_path, monkeypatch, change, reason):
    cuda = StubCuda()
    cuda.free = change.get("free", cuda.free)
    cuda.version.cuda = change.get("cuda", "12.8")
    if "environment" in change:
        monkeypatch.setenv(change["environment"], "1")
    monkeypatch.setattr(module, "clock", lambda: 0)
    windows = Windows(
        agent_of(cuda, [], tmp_path, uses_graphs="cuda" in change, mark=SimpleNamespace(device=1)), lambda: True
    )
    assert not any(windows.at_step_boundary(index * SECOND // 10, index + 1) for index in range(200))
    assert windows.state == {"reason": reason, "graph_times_wrong": False}


def test_gpu_gets_its_window_once_it_has_free_memory(make):
    cuda = StubCuda()
    cuda.free = 0
    loop = make(budget=1.0, torch=cuda)
    loop.agent.mark = SimpleNamespace(device=0)
    assert not any(loop.steps(60))
    cuda.free = 8 << 30
    loop.until_open()


@pytest.mark.parametrize(("version", "wrong"), [("12.8", True), ("13.1", False), (None, False)])
def test_times_of_kernels_in_graphs_are_not_trusted_before_cuda_13_1(make, version, wrong):
    cuda = StubCuda()
    cuda.version.cuda = version
    loop = make(budget=1.0, torch=cuda)
    loop.agent.uses_graphs = True
    assert not loop.windows.state["graph_times_wrong"], "there is no window yet"
    loop.until_open()
    loop.steps(STEPS + 1)
    assert loop.windows.state["graph_times_wrong"] is wrong


def test_reason_for_a_missing_window_is_kept(make):
    assert make(budget=0.0).windows.state["reason"] == "off"
    short = make(budget=1.0)
    short.steps(HALF)
    assert short.windows.state["reason"] == "too_few_steps"
    poor = make(budget=0.0001)
    poor.steps(60)
    assert poor.windows.state["reason"] == "budget"


def test_no_window_opens_or_ends_during_cuda_graph_capture(make):
    cuda = StubCuda()
    loop = make(budget=1.0, torch=cuda)
    cuda.capturing = True
    assert not any(loop.steps(100))

    cuda.capturing = False
    loop.until_open()
    cuda.capturing = True
    assert all(loop.steps(10))
    assert "query" not in cuda.calls

    cuda.capturing = False
    assert not loop.step()
    assert cuda.calls[-2:] == ["query", "disable"]


def test_exit_does_not_wait_for_a_busy_gpu(make):
    cuda = StubCuda()
    loop = make(budget=1.0, torch=cuda)
    loop.until_open()
    loop.steps(2)
    cuda.idle = False

    loop.windows.close()

    assert cuda.calls[-2:] == ["query", "disable"]
    assert loop.facts_of("window") == []


def test_torch_that_cannot_record_its_gpu_is_reported(make, monkeypatch):
    if torch.autograd.ProfilerActivity.CUDA in torch.autograd._supported_activities():
        pytest.skip("this torch can record GPUs")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    loop = make(budget=1.0)

    assert not any(loop.steps(60))
    (problem,) = loop.facts_of("problem")
    assert "CUDA" in problem["message"]


TRAINING = """
import itertools, os, sys, time
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
facts = []
if sys.argv[1] != "plain":
    from profiler.agent.session import Agent
    from profiler.agent.window import Windows
    agent = Agent(torch, {"rings": sys.argv[1], "windows": sys.argv[1], "budget": 1.0})
    agent.fact = lambda kind, body: facts.append((kind, body))
    windows = Windows(agent, lambda: True)
    os.register_at_fork(after_in_child=windows.after_fork)
data = TensorDataset(torch.randn(960, 16), torch.randint(0, 4, (960,)))
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
optimizer = torch.optim.Adam(model.parameters())
if sys.argv[1] != "plain":
    steps = itertools.count(1)
    optimizer.register_step_post_hook(lambda *_: windows.at_step_boundary(time.perf_counter_ns(), next(steps)))
for epoch in range(2):
    for x, y in DataLoader(data, 8, shuffle=True, num_workers=2):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        print(loss.item().hex())
if sys.argv[1] != "plain":
    windows.close()
    with open(os.path.join(sys.argv[1], "facts"), "w") as file:
        file.write(repr(facts))
"""


@pytest.mark.process
def test_a_real_loop_trains_the_same_and_its_window_shows_what_it_did(tmp_path):
    def run(argument):
        return subprocess.run(
            [sys.executable, "-c", TORCH + TRAINING, argument],
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
        )

    plain = run("plain")
    watched = run(str(tmp_path))

    assert watched.stdout == plain.stdout
    assert plain.stdout.count("\n") == 240
    assert watched.stderr == plain.stderr == ""
    paths = sorted(tmp_path.glob("window-*.json"))
    assert paths
    assert "problem" not in (tmp_path / "facts").read_text()
    window, rows, *_ = parse(paths[0], pid=1, position=0, start=0.0, steps=0, cost=0.0, device="cpu")
    assert window.device == "cpu"
    assert window.steps >= (1 if window.shapes else STEPS)  # one slow step with shapes is enough
    assert 0 < sum(row.total for row in rows) <= window.duration
    calls = {(row.name, row.kind): row.calls for row in rows}
    # Two layers; backward passes through both weights and one input. aten::addmm is in the forward pass.
    assert calls["aten::addmm", "matmul"] == 2 * window.steps
    assert calls["aten::mm", "matmul"] == 3 * window.steps
    assert "optimizer" in {row.kind for row in rows}
