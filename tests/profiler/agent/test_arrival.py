"""Whether a batch that was put can be taken, with real pipes and processes."""

import queue
import subprocess
import sys
import time
from multiprocessing import Pipe
from types import SimpleNamespace

import pytest

from profiler.agent.hooks.arrival import TURN_NS, Arrival


@pytest.fixture
def worker():
    """Start a process that runs this; gives back the dictionary of an iterator whose next batch it makes."""
    started = []

    def start(code):
        process = subprocess.Popen([sys.executable, "-c", f"print(flush=True)\n{code}"], stdout=subprocess.PIPE)
        started.append(process)
        process.stdout.readline()
        return {"_workers": [process], "_task_info": {7: (0,)}, "_rcvd_idx": 7}

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def pipe():
    reader, writer = Pipe(duplex=False)
    with reader, writer:
        yield SimpleNamespace(_reader=reader, send=writer.send, close=writer.close)


def slow_fetch(arrival, iterator):
    """A fetch after another slow one, until the worker computed for two turns or so many passed; was it late?"""
    arrival.was_late(2 * TURN_NS)
    arrival.has_come(iterator)
    before = arrival._before
    begin = time.perf_counter_ns()
    while time.perf_counter_ns() - begin < 10 * TURN_NS:
        time.sleep(0.001)
        if before and time.clock_gettime_ns(before[0]) - before[2] > 2 * TURN_NS:
            break
    return arrival.was_late(2 * TURN_NS)


def test_a_batch_has_come_when_its_pipe_can_be_read(pipe):
    arrival, iterator = Arrival(pipe), {}

    assert not arrival.has_come(iterator)
    pipe.send("a batch")
    assert arrival.has_come(iterator)


def test_workers_that_are_gone_and_pipes_that_are_closed_are_no_reason_to_wait(pipe):
    arrival, iterator = Arrival(pipe), {}
    pipe.close()
    assert arrival.has_come(iterator)
    pipe._reader.close()
    assert arrival.has_come(iterator)


def test_a_queue_of_this_process_holds_what_has_come():
    arrival = Arrival(queue.Queue())

    assert arrival.has_come(None)
    assert not arrival.was_late(2 * TURN_NS)


@pytest.mark.process
def test_a_slow_fetch_from_a_worker_that_computes_was_late(pipe, worker):
    arrival, iterator = Arrival(pipe), worker("while True: pass")

    arrival.has_come(iterator)
    assert not arrival.was_late(2 * TURN_NS)  # of the first nothing is known
    assert slow_fetch(arrival, iterator)


@pytest.mark.process
def test_after_a_quick_fetch_nothing_is_known_of_the_next(pipe, worker):
    arrival, iterator = Arrival(pipe), worker("while True: pass")
    arrival.was_late(2 * TURN_NS)
    arrival.has_come(iterator)
    assert arrival.slow  # this one was quick
    arrival.has_come(iterator)
    assert not arrival.slow


@pytest.mark.process
def test_one_from_a_worker_that_sleeps_was_not(pipe, worker):
    assert not slow_fetch(Arrival(pipe), worker("import time\nwhile True: time.sleep(1)"))


@pytest.mark.process
def test_one_in_which_this_thread_computed_was_not(pipe, worker):
    arrival, iterator = Arrival(pipe), worker("while True: pass")
    arrival.was_late(2 * TURN_NS)
    arrival.has_come(iterator)
    begin = time.thread_time_ns()
    while time.thread_time_ns() - begin < 2 * TURN_NS:
        pass
    assert not arrival.was_late(2 * TURN_NS)


@pytest.mark.process
def test_one_from_a_worker_that_ended_was_not(pipe, worker):
    arrival, iterator = Arrival(pipe), worker("while True: pass")
    arrival.was_late(2 * TURN_NS)
    arrival.has_come(iterator)
    (process,) = iterator["_workers"]
    process.kill()
    process.wait()
    assert not arrival.was_late(2 * TURN_NS)
    assert not slow_fetch(arrival, iterator)
