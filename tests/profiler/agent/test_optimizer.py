import torch
from torch.optim import optimizer as of_torch
from torch.utils.hooks import RemovableHandle

from profiler.agent.hooks import optimizer
from profiler.agent.session import Agent


def test_hooks_of_the_program_are_numbered_as_without_us(tmp_path):
    """Also tests that ours are next to the program's, and go."""
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
