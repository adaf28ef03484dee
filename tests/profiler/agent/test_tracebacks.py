import os
import sys
import traceback
import warnings

import pytest
import torch

from profiler.agent import tracebacks
from profiler.agent.hooks import anomaly, backward, dataloader, forward, save
from profiler.agent.session import Agent

OURS = os.path.dirname(os.path.abspath(tracebacks.__file__)) + os.sep


def ours(error):
    """Return the agent's frames in the tracebacks of an error and of its causes."""
    found = []
    while error is not None:
        found += [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(OURS)]
        error = error.__cause__ or error.__context__
    return found


@pytest.fixture
def agent(tmp_path):
    made = Agent(torch, {"rings": str(tmp_path)})
    yield made
    made.stop()


@pytest.fixture
def hooked(agent):
    """Install the hooks that wrap code that may raise; return the agent."""
    roots = forward.Roots(agent, lambda module, number: None)
    for hook in (save, backward, dataloader):
        hook.install(agent)
    roots.install()
    return agent


class Picky(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.fails = False

    def forward(self, x):
        if self.fails:
            raise ValueError("bad input")
        return x * self.weight


class Broken(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        raise ValueError("bad sample")


def in_forward(agent, steps):
    model = Picky()
    model(torch.ones(1))
    for now in range(steps):
        agent.end_step(now)
    model.fails = True
    model(torch.ones(1))


FAILING = {
    "save": lambda agent: torch.save({}, "/nowhere/at/all"),
    "backward": lambda agent: torch.ones(1).backward(),
    "grad": lambda agent: torch.autograd.grad(torch.ones(1), torch.ones(1)),
    "fetch": lambda agent: next(iter(torch.utils.data.DataLoader(Broken()))),
    "forward, watched": lambda agent: in_forward(agent, 0),
    "forward of a root": lambda agent: in_forward(agent, forward.WATCHED_STEPS),
}


@pytest.mark.parametrize("what", FAILING)
def test_tracebacks_of_hooked_code_have_no_agent_frames(hooked, what):
    with pytest.raises((RuntimeError, ValueError)) as caught:
        FAILING[what](hooked)
    assert ours(caught.value) == []


def test_step_aside_removes_only_the_calling_frame():
    def fails():
        raise ValueError

    def hook():
        try:
            fails()
        except ValueError as error:
            tracebacks.step_aside(error)
            raise

    with pytest.raises(ValueError) as caught:  # noqa: PT011
        hook()
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-1] == "fails"
    assert "hook" not in names


def test_an_error_without_a_traceback_is_left_alone():
    error = ValueError()
    tracebacks.step_aside(error)
    assert error.__traceback__ is None


@pytest.fixture
def excepthook(monkeypatch):
    printed = []
    monkeypatch.setattr(sys, "excepthook", lambda *arguments: printed.append(arguments))
    return printed


def raised(model):
    try:
        model(torch.ones(1))
    except ValueError as error:
        return error


def test_uncaught_error_is_noted_and_printed_as_usual(agent, excepthook):
    tracebacks.install(agent)
    error = raised(Picky()) or ValueError("x")
    assert agent.failed is False
    sys.excepthook(type(error), error, error.__traceback__)
    assert agent.failed is True
    assert excepthook == [(type(error), error, error.__traceback__)]


def test_traceback_of_wrapped_root_matches_plain_module(hooked, excepthook):
    """The traceback is the same, line by line, as in a process without the profiler."""
    plain = Picky()
    plain.fails = True
    hooked.stop()
    expected = raised(plain)

    agent = Agent(torch, {"rings": hooked.folder})
    roots = forward.Roots(agent, lambda module, number: None)
    roots.install()
    tracebacks.install(agent)
    model = Picky()
    model(torch.ones(1))
    for now in range(forward.WATCHED_STEPS):
        agent.end_step(now)
    model.fails = True
    error = raised(model)
    sys.excepthook(ValueError, error, error.__traceback__)
    agent.stop()
    assert [(frame.filename, frame.lineno, frame.name) for frame in traceback.extract_tb(error.__traceback__)] == [
        (frame.filename, frame.lineno, frame.name) for frame in traceback.extract_tb(expected.__traceback__)
    ]


def test_error_that_cannot_be_read_is_still_printed(agent, excepthook):
    tracebacks.install(agent)
    sys.excepthook(KeyboardInterrupt, None, None)
    assert excepthook == [(KeyboardInterrupt, None, None)]


def test_excepthook_installed_over_ours_stays(agent, excepthook, monkeypatch):
    tracebacks.install(agent)
    ((_, undo),) = agent.uninstall
    ours = sys.excepthook
    theirs = print
    sys.excepthook = theirs
    undo()
    assert sys.excepthook is theirs
    sys.excepthook = ours
    undo()
    assert sys.excepthook is not ours


def test_anomaly_detection_traceback_has_no_agent_frames(agent, hooked):
    anomaly.install(agent)
    model = torch.nn.Linear(2, 2)
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        frames = model(torch.ones(1, 2)).grad_fn.metadata["traceback_"]
    text = "".join(frames)
    assert OURS not in text
    assert __file__ in text
    assert "_call_impl" in text


def test_out_of_memory_message_is_cut_at_a_sentence_end():
    text = "CUDA out of memory. " + "Of the allocated memory 1.5 GiB is allocated by PyTorch. " * 30
    kept = tracebacks._whole_sentences(text)
    assert text.startswith(kept)
    assert kept.endswith("PyTorch.")
    assert len(kept) > 900
    assert tracebacks._whole_sentences("x" * 2000) == "x" * tracebacks.MOST_WORDS


class Warns(torch.nn.Module):
    """A module that warns in its forward and backward pass, at every level of the stack."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(1, 1)

    def forward(self, x):
        warn()
        x = self.inner(x)
        x.register_hook(lambda gradient: warn())
        return x


class WarnsToo(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        warn()
        return torch.ones(1)


def warn():
    for level in range(1, 9):
        warnings.warn(f"level {level}", stacklevel=level)


def test_warnings_point_at_same_lines_as_without_hooks(hooked):
    model, found = Warns(), []
    for end in (hooked.stop, lambda: None):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for batch in torch.utils.data.DataLoader(WarnsToo(), batch_size=2):
                model(batch).sum().backward()
        # torch calls a root from another line of `_wrapped_call_impl`.
        found.append([(each.filename, each.lineno if each.filename == __file__ else None) for each in caught])
        end()

    assert len(found[0]) == 8 * (4 + 2 + 2)
    assert found[0] == found[1]
