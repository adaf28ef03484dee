"""Compile a model and a function around one, with recompilation an error, before and after training it."""

import torch
import torch._dynamo
from ending import data, model, say
from torch._dynamo.utils import counters

torch._dynamo.config.error_on_recompile = True


def steps(network, run, count=10):
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    losses = []
    for _ in range(count):
        x, y = data()
        loss = torch.nn.functional.mse_loss(run(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


for trained_before in (0, 8):
    network, inner = model(), model()
    steps(inner, inner, trained_before)
    say(steps(network, torch.compile(network, backend="eager")), network=network)
    say(steps(inner, torch.compile(lambda x, inner=inner: inner(x), backend="eager")), network=inner)
    say(dict(counters["stats"]), dict(counters["graph_break"]))
    torch._dynamo.reset()
    counters.clear()
