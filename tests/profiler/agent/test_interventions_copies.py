"""Pinned batches are copied to a GPU without waiting; other copies are unchanged."""

import contextlib
from types import SimpleNamespace

import pytest
import torch
from torch.overrides import TorchFunctionMode

from profiler.agent.interventions._modification import Modification
from profiler.agent.interventions.loader import copy_without_waiting


class Asked(TorchFunctionMode):
    """A mode that records whether each copy is called with `non_blocking`."""

    def __init__(self):
        super().__init__()
        self.ways = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function.__name__ in ("to", "cuda"):
            self.ways.append(kwargs.get("non_blocking", False) if kwargs else False)
        return function(*args, **(kwargs or {}))


@pytest.fixture
def copied(monkeypatch):
    """Return a function that copies a tensor with the change applied, as if CUDA was present. It returns the
    `non_blocking` of each copy, and whether a copy to a GPU was found."""

    def begin(copy, *, pinned=True, initialized=True, watched=None):
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: initialized)
        monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: pinned)
        found, asked = [], Asked()
        change = Modification(SimpleNamespace(torch=torch))
        copy_without_waiting(change, found)
        try:
            with watched or asked:
                copy(torch.ones(2))
        finally:
            change.undo()
        return asked.ways, bool(found)

    return begin


@pytest.mark.parametrize(
    "copy",
    [
        lambda tensor: tensor.to("meta"),
        lambda tensor: tensor.to(device="meta", dtype=torch.float16),
        lambda tensor: tensor.to("meta", non_blocking=False),
    ],
)
def test_a_copy_of_a_pinned_tensor_does_not_wait(copied, copy):
    assert copied(copy) == ([True], True)


@pytest.mark.parametrize(
    ("copy", "how"),
    [
        (lambda tensor: tensor.to("meta"), {"pinned": False}),
        (lambda tensor: tensor.to("meta"), {"initialized": False}),
        (lambda tensor: tensor.to("meta", torch.float16, False), {}),
    ],
)
def test_other_copies_are_unchanged(copied, copy, how):
    assert copied(copy, **how) == ([False], False)


def test_copy_on_the_host_does_not_count_as_copy_to_gpu(copied):
    assert copied(lambda tensor: tensor.to(torch.float64)) == ([True], False)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [contextlib.nullcontext, lambda: torch.device("cpu")])
def test_compiled_function_copies_without_a_graph_break(copied, mode):
    """Also with a default device, which intercepts every call."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    def compiled(tensor):
        return tensor.sin().to(torch.float64).cos()

    copied(torch.compile(compiled, backend=backend, fullgraph=True), watched=mode())
    assert len(graphs) == 1
