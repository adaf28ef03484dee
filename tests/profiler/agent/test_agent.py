import errno
import json
import os
import posix
import sys
import types
import weakref
from types import SimpleNamespace

import pytest
import torch

from profiler.agent import ring, session
from profiler.agent.event_writer import EventWriter
from profiler.agent.hooks import backward, forward, gc, optimizer, save
from profiler.agent.session import FLUSH_NS, MOST_WAITING, TAG_COMPILE, TAG_WINDOW, TICK_NS, Agent
from profiler.schema import TAG_COMPILE as SCHEMA_COMPILE
from profiler.schema import TAG_WINDOW as SCHEMA_WINDOW


@pytest.fixture
def agent(tmp_path):
    made = Agent(torch, {"rings": str(tmp_path)})
    yield made
    made.stop()


def put(agent, kind, start=1, end=2):
    agent.put((0, kind, start, end))


def events(folder):
    """Return the events of every ring in the folder, without calibration records."""
    return {
        path.stem: [event for event in ring.Reader(str(path)).read() if event.kind]
        for path in sorted(folder.glob("*.ring"))
    }


def only(folder):
    (found,) = events(folder).values()
    return found


def facts(folder, kind):
    lines = [json.loads(line) for path in folder.glob("*.facts") for line in path.read_bytes().splitlines()]
    return [line for line in lines if line["kind"] == kind]


def test_agent_tags_match_schema():
    assert (TAG_WINDOW, TAG_COMPILE) == (SCHEMA_WINDOW, SCHEMA_COMPILE)


# ---- opening ----


@pytest.mark.parametrize("kind", [ring.GC, ring.SAVE, ring.GPU, ring.FORWARD])
def test_events_outside_training_open_no_outlet(agent, tmp_path, kind):
    put(agent, kind)
    agent.flush()
    agent.fact("flags", {})
    assert agent.event_writer is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "kind", [ring.FETCH, ring.ITER, ring.BACKWARD, ring.OPTIMIZER, ring.STEP, ring.BATCH, ring.REGION]
)
def test_first_training_event_opens_outlet_and_writes_waiting_events(agent, tmp_path, kind):
    put(agent, ring.GC, 1, 2)
    agent.flush()
    put(agent, kind, 3, 4)
    agent.flush()
    assert [(event.kind, event.start, event.end) for event in only(tmp_path)] == [(ring.GC, 1, 2), (kind, 3, 4)]


def test_opening_is_announced_once_and_facts_can_be_written_then(agent, tmp_path):
    agent.on_open.append(lambda: agent.fact("process", {"rank": 3}))
    for _ in range(2):
        put(agent, ring.BACKWARD)
        agent.flush()
    assert [fact["rank"] for fact in facts(tmp_path, "process")] == [3]


def test_a_process_that_never_trains_keeps_a_bounded_number_of_events(agent):
    for number in range(MOST_WAITING + 10):
        put(agent, ring.GC, number, number)
    assert len(agent._events) == MOST_WAITING


def test_audit_hook_that_forbids_the_ring_is_reported_by_error_type(agent, tmp_path, monkeypatch):
    def forbidden(folder, worker):
        raise LookupError("private words")

    monkeypatch.setattr(session, "EventWriter", forbidden)
    put(agent, ring.BACKWARD)
    agent.flush()
    (line,) = (tmp_path / "problems").read_text().splitlines()
    assert line.endswith(" LookupError")


def test_full_disk_is_reported_once_and_opens_no_outlet(agent, tmp_path, monkeypatch):
    reason = os.strerror(errno.ENOSPC)

    def full(folder, worker):
        raise OSError(reason)

    monkeypatch.setattr(session, "EventWriter", full)
    for _ in range(3):
        put(agent, ring.BACKWARD)
        agent.flush()
    (line,) = (tmp_path / "problems").read_text().splitlines()
    assert line.startswith(f"{os.getpid()} ")
    assert line.endswith(reason)
    assert agent.event_writer is None


def test_concurrent_flush_opens_no_second_outlet(agent, tmp_path, monkeypatch):
    def slow(folder, worker):
        put(agent, ring.BACKWARD)
        agent.flush()  # as another thread would
        return EventWriter(folder, worker)

    monkeypatch.setattr(session, "EventWriter", slow)
    put(agent, ring.BACKWARD)
    agent.flush()
    assert len(only(tmp_path)) == 2


def test_events_put_during_search_for_training_are_harmless(agent, tmp_path):
    """Garbage collection may run at any allocation."""

    class Collecting(int):
        def __hash__(self):
            put(agent, ring.GC)
            return super().__hash__()

    for _ in range(3):
        agent.put((0, Collecting(ring.GC), 1, 2))
    put(agent, ring.BACKWARD)
    agent.flush()
    assert agent.event_writer is not None


# ---- forks ----


def test_a_forked_child_drops_the_parents_events_and_opens_its_own_outlet(agent, tmp_path):
    put(agent, ring.BACKWARD, 1, 2)
    agent.flush()
    first = agent.event_writer
    put(agent, ring.BACKWARD, 3, 4)
    windows = agent.windows = Windows()
    agent.mark, agent.steps = print, 7
    agent.after_fork()
    assert windows.forked
    assert (agent.event_writer, agent.windows, agent.mark, agent.steps) == (None, None, None, 0)
    put(agent, ring.BATCH, 5, 6)
    agent.flush()
    assert agent.event_writer is not first
    assert sorted([(event.start, event.end) for event in found] for found in events(tmp_path).values()) == [
        [(1, 2)],
        [(5, 6)],
    ]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.process
def test_a_real_fork_leaves_the_parents_ring_alone(agent, tmp_path):
    put(agent, ring.BACKWARD, 1, 2)
    agent.flush()
    put(agent, ring.BACKWARD, 3, 4)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            agent.after_fork()
            put(agent, ring.BATCH, 5, 6)
            agent.flush()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    agent.flush()
    by_process = {int(name.split("-")[0]): [event.start for event in found] for name, found in events(tmp_path).items()}
    assert by_process == {os.getpid(): [1, 3], child: [5]}


def test_forked_child_that_trains_finds_its_root_modules(agent):
    """The watch began in the parent, before its first step."""
    seen = []
    roots = forward.Roots(agent, lambda module, number: seen.append(module))
    roots.install()
    agent.steps = 1000
    agent.after_fork()
    model = torch.nn.Linear(2, 2)
    for now in range(forward.WATCHED_STEPS):
        model(torch.ones(1, 2))
        agent.end_step(now)
    assert seen == [model]


def test_root_module_called_while_the_watch_ends_is_timed(agent):
    """For example by another training thread."""
    models = []

    def seen(module, number):
        model(torch.ones(1, 2))
        models.append(number)

    roots = forward.Roots(agent, seen)
    roots.install()
    model = torch.nn.Linear(2, 2)
    for now in range(forward.WATCHED_STEPS):
        model(torch.ones(1, 2))
        agent.end_step(now)
    assert models == [1]
    assert [event[1] for event in agent._events] == [ring.FORWARD] * (forward.WATCHED_STEPS + 1)


# ---- giving up ----


def test_giving_up_removes_only_that_hook(agent, tmp_path):
    out = []
    for name in ("a", "b", "c"):
        agent.uninstall.append((name, lambda name=name: out.append(name)))
    put(agent, ring.BACKWARD)
    agent.flush()
    agent.give_up("b", ValueError("unexpected"))
    assert out == ["b"]
    assert [name for name, _ in agent.uninstall] == ["a", "c"]
    (problem,) = facts(tmp_path, "problem")
    assert (problem["source"], problem["message"]) == ("b", "ValueError: unexpected")
    agent.give_up("b", ValueError("again"))
    assert out == ["b"]


def test_hook_that_cannot_be_removed_is_still_given_up(agent):
    def undo():
        raise RuntimeError

    agent.uninstall.append(("a", undo))
    agent.give_up("a", ValueError())
    assert agent.uninstall == []


@pytest.mark.parametrize("kind", ["on_step", "on_tick"])
def test_callback_that_raises_is_dropped_and_others_continue(agent, tmp_path, kind):
    calls = []

    def bad():
        calls.append("bad")
        raise KeyError("surprise")

    getattr(agent, kind)[:] = [bad, lambda: calls.append("good")]
    agent.uninstall.append(("optimizer", lambda: calls.append("out")))
    put(agent, ring.BACKWARD)
    agent.flush()
    for now in range(2):
        agent.end_step(now)
        agent.tick()
    assert calls == ["bad", "good", "good"]
    (problem,) = facts(tmp_path, "problem")
    assert "surprise" in problem["message"]
    assert "bad" in problem["source"]


# ---- flushes and windows ----


class Windows:
    """Windows that are open at the given step boundaries."""

    def __init__(self, *open_at):
        self.open_at = open_at
        self.cost = 0.25
        self.closed = False
        self.forked = False
        self.count = 0
        self.due = 0

    def at_step_boundary(self, now, steps):
        self.count = steps
        return self.count in self.open_at

    def close(self):
        self.closed = True

    def after_fork(self):
        self.forked = True


def test_steps_in_window_and_the_step_that_saves_it_are_tagged(agent):
    # The window is open from the end of step 2 to the end of step 4: it covers steps 3 and 4 and is saved in step 5.
    agent.windows = Windows(2, 3)
    tagged = [bool(agent.end_step(now) & TAG_WINDOW) for now in range(1, 8)]
    assert tagged == [False, False, True, True, True, False, False]


def test_a_window_right_after_another_leaves_no_step_untagged(agent):
    agent.windows = Windows(1, 3)
    tagged = [bool(agent.end_step(now) & TAG_WINDOW) for now in range(1, 7)]
    assert tagged == [False, True, True, True, True, False]


def test_steps_need_no_attention_between_flushes_but_windows_count_them(agent, tmp_path):
    agent.windows = Windows()
    put(agent, ring.OPTIMIZER)
    agent.end_step(agent.flushed)
    agent.after_step(agent.flushed)
    agent.windows.due = agent.flushed + 10 * FLUSH_NS
    agent.after_step(agent.flushed)
    assert agent.attend == agent.flushed + FLUSH_NS
    agent.windows.due = agent.flushed + 7
    agent.after_step(agent.flushed)
    assert agent.attend == agent.flushed + 7
    agent.steps += 5  # steps for which after_step was not called
    agent.end_step(agent.attend)
    assert agent.windows.count == agent.steps


@pytest.mark.parametrize("reason", ["on_step", "window_open", "mark", "own_steps"])
def test_callbacks_windows_and_marks_need_attention_at_each_step(agent, reason):
    set_to = {"on_step": [print], "mark": types.SimpleNamespace(on=True)}
    setattr(agent, reason, set_to.get(reason, True))
    agent.after_step(agent.flushed)
    assert agent.attend == 0


def test_steps_that_compile_are_tagged(agent, monkeypatch):
    stats = {}
    utils = SimpleNamespace(counters={"stats": stats})
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", utils)
    tags = []
    for stats["unique_graphs"] in (0, 1, 1, 3):
        tags.append(agent.end_step(0))
    assert tags == [0, TAG_COMPILE, 0, TAG_COMPILE]


def test_flushes_and_ticks_keep_their_intervals(agent, tmp_path):
    ticks = []
    agent.on_tick.append(lambda: ticks.append(1))
    put(agent, ring.OPTIMIZER)
    begin = agent.flushed
    agent.after_step(begin + FLUSH_NS)
    assert agent.event_writer is None
    agent.after_step(begin + FLUSH_NS + 1)
    assert len(only(tmp_path)) == 1
    assert len(ticks) == 1
    agent.flushed = begin
    agent.after_step(begin + TICK_NS)
    assert len(ticks) == 1
    agent.flushed = begin
    agent.after_step(begin + TICK_NS + FLUSH_NS + 1)
    assert len(ticks) == 2


def test_tick_publishes_cost_of_hooks_and_windows(agent, tmp_path):
    put(agent, ring.OPTIMIZER)
    agent.flush()
    agent.windows = Windows()
    agent.tick()
    (path,) = tmp_path.glob("*.ring")
    counters = ring.Reader(str(path)).counters()
    assert counters.windows_ns == 250_000_000
    assert counters.rare_ns > 0


# ---- ends ----


def test_finishing_writes_last_events_and_the_outcome(agent, tmp_path):
    agent.windows = Windows()
    windows = agent.windows
    put(agent, ring.OPTIMIZER, 1, 2)
    agent.failed = True
    agent.finish()
    assert [event.end for event in only(tmp_path)] == [2]
    assert [fact["failed"] for fact in facts(tmp_path, "end")] == [True]
    assert windows.closed
    assert agent.event_writer is None


def test_audit_hook_that_forbids_recorder_check_does_not_end_measurement(agent, tmp_path, monkeypatch):
    """An audit hook of the program may raise any exception."""

    def forbidden(pid, number):
        raise RuntimeError("no signals here")

    agent.settings["recorder"] = 1
    monkeypatch.setattr(posix, "kill", forbidden)
    put(agent, ring.OPTIMIZER)
    agent.flush()
    agent.finish()
    assert [fact["failed"] for fact in facts(tmp_path, "end")] == [False]
    assert not agent.abandoned
    assert facts(tmp_path, "problem") == []


def test_finishing_twice_or_without_an_outlet_does_nothing(agent, tmp_path):
    agent.finish()
    agent.finish()
    put(agent, ring.OPTIMIZER)
    agent.flush()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("broken", ["flush", "tick", "windows", "event_writer"])
def test_finishing_never_raises(agent, monkeypatch, broken):
    def fail(*arguments):
        raise RuntimeError("surprise")

    put(agent, ring.OPTIMIZER)
    agent.flush()
    if broken == "windows":
        agent.windows = SimpleNamespace(close=fail, cost=0.0)
    elif broken == "event_writer":
        monkeypatch.setattr(agent.event_writer, "publish", fail)
    else:
        monkeypatch.setattr(agent, broken, fail)
    agent.finish()
    assert agent.event_writer is None


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated")
def test_torchscript_compiles_a_call_of_torch_save(agent):
    table = torch.jit._builtins._get_builtin_table()
    before = len(table)
    save.install(agent)

    @torch.jit.script
    def saved(x):
        torch.save(x, "/dev/null")
        return x

    assert "aten::save" in str(saved.graph)
    agent.stop()
    assert len(table) == before


def test_stopping_removes_every_hook_and_restores_torch(agent):
    import gc as collector

    before = (torch.save, torch.autograd.backward, torch.autograd.grad, list(collector.callbacks))
    from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

    hooks = len(_global_optimizer_pre_hooks), len(_global_optimizer_post_hooks)
    for hook in (save, backward, gc):
        hook.install(agent)
    optimizer.install(agent, lambda *arguments: None)
    forward.Roots(agent, lambda *arguments: None).install()
    assert torch.save is not before[0]
    assert vars(torch.nn.Module)["_compiled_call_impl"] is not None
    agent.stop()
    assert (torch.save, torch.autograd.backward, torch.autograd.grad, list(collector.callbacks)) == before
    assert (len(_global_optimizer_pre_hooks), len(_global_optimizer_post_hooks)) == hooks
    assert vars(torch.nn.Module)["_compiled_call_impl"] is None


def test_safetensors_saves_are_recorded(agent, tmp_path, monkeypatch):
    module = types.ModuleType("safetensors.torch")
    module.save_file = plain = lambda tensors, name: (tensors, name)
    monkeypatch.setitem(sys.modules, "safetensors.torch", module)
    save.install(agent)
    assert module.save_file({}, "model.safetensors") == ({}, "model.safetensors")
    put(agent, ring.BACKWARD)
    agent.flush()
    assert ring.SAVE in [event.kind for event in only(tmp_path)]
    agent.stop()
    assert module.save_file is plain


def test_hook_that_cannot_be_removed_does_not_keep_others(agent):
    out = []

    def fail():
        raise RuntimeError

    agent.uninstall += [("a", lambda: out.append("a")), ("b", fail), ("c", lambda: out.append("c"))]
    agent.stop()
    assert out == ["c", "a"]


# ---- optimizer steps, distinguished ----


@pytest.fixture
def steps(agent):
    """Install the optimizer hook; return the list of times at which a step of the run ended."""
    ended = []
    agent.end_step = lambda now: ended.append(now) or 0
    agent.after_step = lambda now: None  # keeps `attend` at 0, so that no step is skipped
    optimizer.install(agent, lambda *arguments: None)
    return ended


def an_optimizer(cls=torch.optim.SGD):
    parameter = torch.nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    return cls([parameter], lr=0.1)


class Outer(torch.optim.SGD):
    """An optimizer that steps another one inside its own step, as wrappers do."""

    inner = None

    def step(self, closure=None):
        self.inner.step(closure)


def test_nested_optimizer_steps_count_as_one(steps):
    outer = an_optimizer(Outer)
    outer.inner = an_optimizer()
    for count in (1, 2):
        outer.step()
        assert len(steps) == count


def test_failed_optimizer_step_hides_no_later_step(steps):
    failing, other = an_optimizer(Outer), an_optimizer()
    with pytest.raises(AttributeError):
        failing.step()  # its inner optimizer is None
    other.step()  # a new optimizer of the program, for example after an out-of-memory error
    other.step()
    assert len(steps) == 2
    failing.inner = other
    failing.step()
    assert len(steps) == 3


def test_an_optimizer_whose_step_has_failed_is_not_kept_alive(steps):
    failing = an_optimizer(Outer)
    with pytest.raises(AttributeError):
        failing.step()
    parameter = weakref.ref(failing.param_groups[0]["params"][0])
    del failing
    assert parameter() is None


def test_nested_steps_are_detected_without_reading_frame_locals(steps):
    outer = an_optimizer(Outer)
    outer.inner = an_optimizer()

    batch = torch.ones(1)
    held = weakref.ref(batch)
    outer.step()
    del batch  # before Python 3.13 a frame whose locals were read would keep it
    assert held() is None


def test_failed_closure_hides_no_later_step(steps):
    one = an_optimizer()

    def closure():
        raise ValueError("no loss")

    with pytest.raises(ValueError, match="no loss"):
        one.step(closure)
    one.step()
    assert len(steps) == 1
