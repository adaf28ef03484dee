import torch
from torch.optim import optimizer as of_torch
from torch.utils.hooks import RemovableHandle

from profiler.agent.hooks import optimizer
from profiler.agent.session import Agent


def test_program_hooks_keep_their_ids(tmp_path):
    """Our hooks are also next to the program's, and are removed again."""
    agent = Agent(torch, {"rings": str(tmp_path)})
    first, weight = RemovableHandle.next_id, torch.nn.Parameter(torch.ones(1))
    optimizer.install(agent, lambda *_: None)
    theirs = of_torch.register_optimizer_step_post_hook(lambda *_: None)
    weight.grad = torch.ones(1)
    torch.optim.SGD([weight], lr=0.5).step()
    numbers = list(of_torch._global_optimizer_post_hooks)
    agent.remove("optimizer")
    left = list(of_torch._global_optimizer_post_hooks), list(of_torch._global_optimizer_pre_hooks)
    theirs.remove()
    agent.stop()

    assert theirs.id == first
    assert len(numbers) == 2
    assert left == ([first], [])
    assert agent.steps == 1
    assert weight.item() == 0.5
