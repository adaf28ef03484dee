"""Run an ensemble of stacked models by vmap."""

import copy

import torch
from ending import data, model, say, train

networks = [model() for _ in range(3)]
losses = [loss for network in networks for loss in train(network)]
weights, buffers = torch.func.stack_module_state(networks)
base = copy.deepcopy(networks[0]).to("meta")
x, _ = data()
out = torch.vmap(lambda w, b: torch.func.functional_call(base, (w, b), (x,)))(weights, buffers)
say(losses, out.sum((1, 2)).tolist(), network=networks[0])
