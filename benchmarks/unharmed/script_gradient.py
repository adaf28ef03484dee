"""Script a function that takes a gradient."""

import torch
from ending import data, model, say, train


@torch.jit.script
def slope(x):
    y = (x * x).sum()
    found = torch.autograd.grad([y], [x])[0]
    assert found is not None
    return found


network = model()
losses = train(network)
scripted = torch.jit.script(network)
x, _ = data()
say(
    losses,
    [slope(torch.ones(3, requires_grad=True)).sum().item(), scripted(x).sum().item()],
    train(scripted),
    network=network,
)
