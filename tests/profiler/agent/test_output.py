"""What leads up to a log line is timed from what the training thread did last."""

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
    tick(agent)  # the start is over
    agent.steps = 10
    tick(agent)
    yield agent, facts
    agent.remove("output")


@pytest.fixture
def log(clock):
    """A log line takes 3 ns."""
    handler = logging.Handler()
    handler.emit = lambda record: setattr(clock, "now", clock.now + 3)
    return lambda: handler.handle(logging.LogRecord("a", logging.INFO, "", 0, "", None, None))


def tick(agent):
    for each in agent.on_tick:
        each()


def seconds(facts):
    return {name: round(facts[-1][name] * 1e9) for name in ("leading_up", "seconds")}


def test_from_the_update_to_the_line_and_from_one_line_to_the_next(agent_and_facts, clock, log):
    agent, facts = agent_and_facts
    agent.put((ident(), OPTIMIZER, 50, 100, 1))
    clock.now = 140
    log()  # 40 after the update
    clock.now += 7
    log()
    tick(agent)

    assert seconds(facts) == {"leading_up": 47, "seconds": 6}


def test_what_was_flushed_is_over(agent_and_facts, clock, log):
    agent, facts = agent_and_facts
    agent.flushed = 120
    clock.now = 140
    log()
    tick(agent)

    assert seconds(facts)["leading_up"] == 20


def test_a_collection_and_other_threads_end_nothing(agent_and_facts, clock, log):
    agent, facts = agent_and_facts
    agent.put((ident(), OPTIMIZER, 50, 100, 1))
    agent.put((ident(), GC, 110, 120))
    agent.put((ident() + 1, FETCH, 110, 130))
    clock.now = 140
    log()
    tick(agent)

    assert seconds(facts)["leading_up"] == 40


def test_a_thread_that_writes_in_the_background_keeps_nobody_waiting(agent_and_facts, clock, log):
    agent, facts = agent_and_facts
    agent.put((ident(), OPTIMIZER, 50, 100, 1))
    clock.now = 140
    writer = threading.Thread(target=log)
    writer.start()
    writer.join()
    tick(agent)

    assert seconds(facts) == {"leading_up": 0, "seconds": 0}


def test_a_handler_within_another_is_part_of_it(agent_and_facts, clock, log):
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
def test_what_is_synced_of_a_checkpoint_is_no_log(agent_and_facts, clock, tmp_path, when):
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


def test_our_own_look_leads_up_to_nothing(agent_and_facts, clock, log):
    agent, facts = agent_and_facts
    agent.put((ident(), OPTIMIZER, 50, 100, 1))
    clock.now = 130
    tick(agent)
    clock.now = 140
    log()
    tick(agent)

    assert seconds(facts)["leading_up"] == 10
