"""Whether a batch that was put into a queue can be taken, with real pipes and processes."""

import queue
import select
import subprocess
import sys
import time
from multiprocessing import Pipe
from types import SimpleNamespace

import pytest

from profiler.agent.hooks.arrival import NO_WORKERS, TURN_NS, UNKNOWN, Arrival


@pytest.fixture
def worker():
    """Return a function that starts a process running `code`, and returns the dictionary of an iterator whose next
    batch that process makes."""
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


class Queue:
    """A queue that holds a batch, with the pipe of a multiprocessing queue."""

    __module__ = "multiprocessing.queues"

    def __init__(self, pipe):
        self._reader = pipe._reader

    def qsize(self):
        return 1


class Fetching:
    """The arrival of an iterator's batches; `held` updates the iterator's dictionary."""

    def __init__(self, **held):
        self.held = {"_num_workers": 1, "_task_info": {}, "_rcvd_idx": 0, **held}
        self.arrival = Arrival(self.held)

    def asked(self):
        return self.arrival.asked(self.held)

    def ready(self, asked, nanoseconds):
        return self.arrival.ready(self.held, asked, nanoseconds)


def arrival_of(pipe, iterator):
    return Fetching(_data_queue=Queue(pipe), **iterator)


def has_come(fetching):
    return fetching.asked()[0] == 1


def was_late(fetching):
    return fetching.ready((1, 0, False), 2 * TURN_NS) == 0


def slow_fetch(arrival):
    """Wait in a fetch until the worker has used more than two turns of CPU time, or ten turns have passed; return
    whether the batch was late."""
    was_late(arrival)
    has_come(arrival)
    before = arrival.arrival._before
    begin = time.perf_counter_ns()
    while time.perf_counter_ns() - begin < 10 * TURN_NS:
        time.sleep(0.001)
        if before and time.clock_gettime_ns(before[0]) - before[2] > 2 * TURN_NS:
            break
    return was_late(arrival)


def test_batch_has_arrived_when_its_pipe_is_readable(pipe):
    arrival = arrival_of(pipe, {})

    assert not has_come(arrival)
    pipe.send("a batch")
    assert has_come(arrival)


def test_dead_workers_and_closed_pipes_count_as_arrived(pipe):
    arrival = arrival_of(pipe, {})
    pipe.close()
    assert has_come(arrival)
    pipe._reader.close()
    assert has_come(arrival)


def test_queued_batch_counts_as_arrived_without_poll(pipe, monkeypatch):
    monkeypatch.delattr(select, "poll")

    assert has_come(arrival_of(pipe, {}))


def test_batch_in_queue_of_this_process_has_arrived():
    batches = queue.Queue()
    batches.put("a batch")
    arrival = Fetching(_data_queue=batches)

    assert has_come(arrival)
    assert not was_late(arrival)
    assert has_come(arrival)
    assert not was_late(arrival)


@pytest.mark.parametrize(("queue", "known"), [(None, NO_WORKERS), (SimpleNamespace(), UNKNOWN)])
def test_missing_or_custom_queue_is_not_queried(queue, known):
    arrival = Fetching(_data_queue=queue)

    assert arrival.ready(arrival.asked(), 2 * TURN_NS) == known


def test_batch_that_arrived_during_the_fetch_was_not_ready(pipe):
    """The fetch waits for the first batch; the one after it arrived meanwhile and was set aside."""
    pipe.send("a batch")
    arrival = arrival_of(pipe, {"_task_info": (tasks := {0: (0,), 1: (0,)})})
    asked = arrival.asked()
    tasks[1] = 0, "a batch"

    assert arrival.ready(asked, 0) == 0
    assert arrival.ready((2, 0, False), 0) == 2


@pytest.mark.process
def test_slow_fetch_from_busy_worker_was_late(pipe, worker):
    arrival = arrival_of(pipe, worker("while True: pass"))

    pipe.send("a batch")
    assert has_come(arrival)
    assert not was_late(arrival)  # nothing is known about the first fetch
    assert slow_fetch(arrival)


@pytest.mark.process
def test_lateness_is_unknown_after_a_quick_fetch(pipe, worker):
    arrival = arrival_of(pipe, worker("while True: pass"))
    was_late(arrival)
    has_come(arrival)
    assert arrival.arrival._before  # the first fetch was quick
    has_come(arrival)
    assert not arrival.arrival._before
    assert not was_late(arrival)


@pytest.mark.process
def test_slow_fetch_from_sleeping_worker_was_not_late(pipe, worker):
    assert not slow_fetch(arrival_of(pipe, worker("import time\nwhile True: time.sleep(1)")))


@pytest.mark.process
def test_fetch_in_which_this_thread_computed_was_not_late(pipe, worker):
    arrival = arrival_of(pipe, worker("while True: pass"))
    was_late(arrival)
    has_come(arrival)
    begin = time.thread_time_ns()
    while time.thread_time_ns() - begin < 2 * TURN_NS:
        pass
    assert not was_late(arrival)


@pytest.mark.process
def test_fetch_from_dead_worker_was_not_late(pipe, worker):
    iterator = worker("while True: pass")
    arrival = arrival_of(pipe, iterator)
    was_late(arrival)
    has_come(arrival)
    (process,) = iterator["_workers"]
    process.kill()
    process.wait()
    assert not was_late(arrival)
    assert not slow_fetch(arrival)
