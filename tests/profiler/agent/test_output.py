"""The time before a log line is measured from the training thread's previous event."""

import logging
import os
import threading

import pytest

from profiler.agent.hooks import output
from profiler.agent.hooks.output import Output
from profiler.agent.ring import FETCH, GC, OPTIMIZER, SAVE
from profiler.agent.session import Agent, ident


@pytest.fixture
def clock(set_clock):
    return set_clock(output)


@pytest.fixture
def agent_and_facts(tmp_path, clock):
    """Yield an agent with this hook only, and its facts, newest last."""
    agent = Agent(None, {"rings": str(tmp_path)})
    agent.flushed = 0
    facts = []
    agent.fact = lambda kind, body: facts.append(body)
    Output(agent).install()
    tick(agent)  # the start-up is over
    agent.steps = 10
    tick(agent)
    yield agent, facts
    agent.remove("output")


@pytest.fixture
def log(clock):
    """Return a function that writes a log line, which takes 3 ns."""
    handler = logging.Handler()
    handler.emit = lambda record: setattr(clock, "now", clock.now + 3)
    return lambda: handler.handle(logging.LogRecord("a", logging.INFO, "", 0, "", None, None))


def tick(agent):
    for each in agent.on_tick:
        each()


def seconds(facts):
    return {name: round(facts[-1][name] * 1e9) for name in ("leading_up", "seconds")}


def test_time_is_measured_from_update_to_line_and_between_lines(agent_and_facts, clock, log):
    agent, facts = agent_and_facts
    agent.put((ident(), OPTIMIZER, 50, 100, 1))
    clock.now = 140
    log()  # 40 ns after the update
    clock.now += 7
    log()
    tick(agent)

    assert seconds(facts) == {"leading_up": 47, "seconds": 6}


def test_time_before_last_flush_is_not_counted(agent_and_facts, clock, log):
    agent, facts = agent_and_facts
    agent.flushed = 120
    clock.now = 140
    log()
    tick(agent)

    assert seconds(facts)["leading_up"] == 20


def test_gc_and_events_of_other_threads_do_not_restart_timing(agent_and_facts, clock, log):
    agent, facts = agent_and_facts
    agent.put((ident(), OPTIMIZER, 50, 100, 1))
    agent.put((ident(), GC, 110, 120))
    agent.put((ident() + 1, FETCH, 110, 130))
    clock.now = 140
    log()
    tick(agent)

    assert seconds(facts)["leading_up"] == 40


def test_output_of_background_thread_is_not_counted(agent_and_facts, clock, log):
    agent, facts = agent_and_facts
    agent.put((ident(), OPTIMIZER, 50, 100, 1))
    clock.now = 140
    writer = threading.Thread(target=log)
    writer.start()
    writer.join()
    tick(agent)

    assert seconds(facts) == {"leading_up": 0, "seconds": 0}


def test_nested_handler_is_counted_once(agent_and_facts, clock, log):
    agent, facts = agent_and_facts
    agent.put((ident(), OPTIMIZER, 50, 100, 1))
    outer = logging.Handler()

    def emit(record):
        clock.now += 5
        log()

    outer.emit = emit
    clock.now = 140
    outer.handle(logging.LogRecord("a", logging.INFO, "", 0, "", None, None))
    tick(agent)

    assert seconds(facts) == {"leading_up": 40, "seconds": 8}


@pytest.mark.parametrize("when", ["inside", "after"])
def test_fsync_of_checkpoint_is_not_counted_as_output(agent_and_facts, clock, tmp_path, when):
    agent, facts = agent_and_facts
    if when == "inside":
        agent.in_save.add(ident())
    else:
        agent.put((ident(), SAVE, 50, 100))
    clock.now = 140
    with open(tmp_path / "model.pt", "wb") as file:
        os.fsync(file.fileno())
    tick(agent)

    assert seconds(facts) == {"leading_up": 0, "seconds": 0}


def test_time_before_agent_tick_is_not_counted(agent_and_facts, clock, log):
    agent, facts = agent_and_facts
    agent.put((ident(), OPTIMIZER, 50, 100, 1))
    clock.now = 130
    tick(agent)
    clock.now = 140
    log()
    tick(agent)

    assert seconds(facts)["leading_up"] == 10
