import pytest
import torch

from profiler.agent.dynamo import FLAG, compiling


@pytest.mark.parametrize("now", [False, True])
def test_hooks_agree_with_torch_on_whether_it_compiles(monkeypatch, now):
    monkeypatch.setattr(torch.compiler, FLAG, now)
    is_traced, flag = compiling(torch)
    assert bool(is_traced() or flag(FLAG)) is torch.compiler.is_compiling() is now


def test_dynamo_traces_compiling_check_as_true():
    is_traced, flag = compiling(torch)
    compiled = torch.compile(lambda x: x + 1 if is_traced() or flag(FLAG) else x, backend="eager", fullgraph=True)
    assert compiled(torch.zeros(1)).item() == 1
