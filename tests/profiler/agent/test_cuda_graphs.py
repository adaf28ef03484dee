from pathlib import Path

import pytest
import torch

from profiler.agent import start
from profiler.agent.hooks import cuda_graphs
from profiler.agent.ring import BACKWARD, FORWARD, MARK_OPTIMIZER_END, OPTIMIZER
from profiler.agent.session import TAG_COMPILE


class Graph:
    """A stand-in for torch.cuda.CUDAGraph, with the methods that programs call."""

    broken = None

    def _call(self, name):
        if name == self.broken:
            raise RuntimeError(name)
        return name

    def capture_begin(self, pool=None, capture_error_mode="global"):
        return self._call("begin")

    def capture_end(self):
        return self._call("end")

    def replay(self):
        return self._call("replay")


@pytest.fixture
def graphs():
    return type("Own", (Graph,), {})


@pytest.fixture
def put_in(tmp_path, graphs, monkeypatch):
    """Install every hook on a torch whose CUDA graphs need no GPU; yield the agent."""
    monkeypatch.setattr(torch.cuda, "CUDAGraph", graphs)
    agent = start.begin({"rings": str(tmp_path)})
    cuda_graphs.install(agent)
    yield agent
    start.end()


def training():
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()

    return step


def kinds(agent):
    return [event[1] for event in agent._events]


def test_capture_is_not_a_step_but_each_replay_is(put_in, graphs):
    agent, step, graph = put_in, training(), graphs()
    agent.flushed = 2**62  # keep the events
    for _ in range(5):
        step()
    assert agent.steps == 5
    graph.capture_begin(pool=1)
    step()
    assert agent.is_capturing()
    graph.capture_end()
    assert not agent.is_capturing()
    assert agent.steps == 5
    agent._events.clear()
    for _ in range(3):
        assert graph.replay() == "replay"
    assert agent.steps == 8
    replays = [event for event in agent._events if event[1] == OPTIMIZER]
    assert [event[7] for event in replays] == [1, 1, 1]
    assert [event[5] & TAG_COMPILE for event in replays] == [TAG_COMPILE, 0, 0]
    assert not {FORWARD, BACKWARD} & set(kinds(agent))


def test_a_graph_without_an_optimizer_ends_no_step(put_in, graphs):
    agent, step, graph = put_in, training(), graphs()
    step()
    graph.capture_begin()
    graph.capture_end()
    graph.replay()
    assert agent.steps == 1


def test_the_end_of_a_replay_is_marked(put_in, graphs):
    agent, step, graph = put_in, training(), graphs()
    step()
    graph.capture_begin()
    step()
    graph.capture_end()
    marked = []
    agent.mark = type("Marks", (), {"on": True, "due": 0, "__call__": lambda self, code: marked.append(code)})()
    graph.replay()
    assert marked == [MARK_OPTIMIZER_END]


@pytest.mark.parametrize("call", ["begin", "end"])
def test_failed_capture_stops_capturing(put_in, graphs, call):
    graph = graphs()
    graph.broken = call

    def capture():
        graph.capture_begin()
        graph.capture_end()

    with pytest.raises(RuntimeError, match=call) as caught:
        capture()
    assert not put_in.is_capturing()
    assert not any(Path(entry.path).is_relative_to(Path(start.__file__).parent) for entry in caught.traceback)
    graph.broken = None
    graph.replay()
    assert put_in.steps == 0


def test_cuda_graph_hooks_are_removed(tmp_path, graphs, monkeypatch):
    plain = Graph.replay
    monkeypatch.setattr(torch.cuda, "CUDAGraph", graphs)
    agent = start.begin({"rings": str(tmp_path)})
    cuda_graphs.install(agent)
    assert graphs.replay is not plain
    agent.remove("cuda_graphs")
    start.end()
    assert graphs.replay is plain
