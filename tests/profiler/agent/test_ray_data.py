"""Waits for batches of Ray Data, with a stand-in for its iterator."""

import sys
import types
from concurrent.futures import ThreadPoolExecutor

import pytest

from profiler.agent import attached
from profiler.agent.hooks import ray_data
from profiler.agent.ring import FETCH
from profiler.agent.session import Agent, ident


class BatchIterator:
    """A stand-in with the shape of Ray's: an iterable whose `__iter__` returns a generator."""

    def __init__(self, clock, *batches):
        self.clock, self.batches = clock, batches
        self.closed = False

    def __iter__(self):
        return self.made()

    def _resolve_block_refs(self, blocks):
        for block in blocks:
            self.clock.now += 7
            yield block

    def made(self):
        try:
            for batch in self.batches:
                self.clock.now += 10
                if isinstance(batch, Exception):
                    raise batch
                yield batch
        finally:
            self.closed = True


@pytest.fixture
def clock(set_clock):
    return set_clock(ray_data)


@pytest.fixture
def regions():
    return []


@pytest.fixture
def events(tmp_path, clock, regions, monkeypatch):
    """Install the hook, as if Ray Data had been imported before; yield what it records."""
    module = types.ModuleType(ray_data.MODULE)
    module.BatchIterator = BatchIterator
    monkeypatch.setitem(sys.modules, ray_data.MODULE, module)
    agent = Agent(None, {"rings": str(tmp_path)})
    put = []
    monkeypatch.setattr(agent, "put", put.append)
    monkeypatch.setattr(agent, "region", lambda *region: regions.append(region))
    ray_data.install(agent)
    yield put
    agent.remove("ray_data")
    for method in (BatchIterator.__iter__, BatchIterator._resolve_block_refs):
        assert method.__code__.co_filename == __file__


def test_each_wait_and_the_end_of_an_epoch_are_recorded(events, clock):
    for _ in BatchIterator(clock, "a", "b"):
        clock.now += 3  # a step

    assert events == [
        (ident(), FETCH, 0, 10, 0, -1),
        (ident(), FETCH, 13, 23, 0, -1),
        (ident(), FETCH, 26, 26, 0, -1, 1),
    ]


def test_fetches_of_blocks_are_a_region(regions, events, clock):
    assert list(BatchIterator(clock)._resolve_block_refs(iter("ab"))) == ["a", "b"]
    assert regions == [(ray_data.BLOCKS, 0, 7), (ray_data.BLOCKS, 7, 14)]
    assert events == []


def test_an_error_passes_without_a_frame_of_the_agent(events, clock):
    with pytest.raises(KeyError) as raised:
        list(BatchIterator(clock, "a", KeyError("block")))

    names = [frame.name for frame in raised.traceback]
    assert names[-1] == "made"
    assert "timed" not in names


def test_leaving_the_loop_closes_the_iterator_at_once(events, clock):
    made = BatchIterator(clock, "a", "b")
    for _ in made:
        break

    assert made.closed


def test_hooks_can_be_removed_while_waiting_for_a_batch(events, clock):
    def asked():
        with ThreadPoolExecutor(1) as other:
            yield other.submit(attached._is_busy).result()

    batches = BatchIterator(clock)
    batches.batches = asked()

    assert list(batches) == [False]
