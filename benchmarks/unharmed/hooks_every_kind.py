"""Register hooks of every kind on a model, its tensors and its optimizer, and count their calls."""

import collections

import torch
from ending import data, model, say
from torch.nn.modules import module as globally

calls = collections.Counter()


def counted(name):
    def hook(*args, **kwargs):
        calls[(name, len(args), *sorted(kwargs))] += 1

    return hook


network = model()
optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
handles = [
    network.register_forward_pre_hook(counted("pre"), with_kwargs=True),
    network.register_forward_hook(counted("forward"), always_call=True),
    network[0].register_forward_hook(lambda module, args, output: output * 1.5, prepend=True),
    network.register_full_backward_pre_hook(counted("backward pre")),
    network.register_full_backward_hook(counted("backward")),
    network.register_state_dict_pre_hook(counted("state pre")),
    network[0].weight.register_hook(lambda gradient: gradient * 2),
    network[0].weight.register_post_accumulate_grad_hook(counted("accumulated")),
    optimizer.register_step_pre_hook(counted("step pre")),
    optimizer.register_step_post_hook(counted("step post")),
    torch.optim.optimizer.register_optimizer_step_pre_hook(counted("any step pre")),
    torch.optim.optimizer.register_optimizer_step_post_hook(counted("any step post")),
    globally.register_module_forward_pre_hook(counted("any pre")),
    globally.register_module_full_backward_hook(counted("any backward")),
]
losses = []
for _ in range(10):
    x, y = data()
    loss = torch.nn.functional.mse_loss(network(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
say(losses, sorted(map(str, calls.items())), [handle.id for handle in handles], network=network)
for handle in handles:
    handle.remove()
calls.clear()
network(data()[0]).sum().backward()
optimizer.step()
say(calls)
