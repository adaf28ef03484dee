"""Adapt a clone whose parameters depend on the model's, and train the model through it (learn2learn, MAML)."""

import torch
from ending import data, model, say
from torch import nn


def clone_of(module):
    """Copy a module without its tensors, then give it clones of them that gradients pass through."""
    clone = module.__new__(type(module))
    clone.__dict__ = module.__dict__.copy()
    clone._parameters = {name: tensor.clone() for name, tensor in module._parameters.items() if tensor is not None}
    clone._modules = {name: clone_of(part) for name, part in module._modules.items()}
    return clone


def adapt(module, gradients):
    """Make one step of gradient descent that gradients pass through."""
    for part in module.modules():
        for name, tensor in part._parameters.items():
            part._parameters[name] = tensor - 0.05 * gradients[id(tensor)]


network = model()
optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
losses = []
for _ in range(12):
    clone = clone_of(network)
    for _ in range(2):
        x, y = data()
        weights = list(clone.parameters())
        found = torch.autograd.grad(nn.functional.mse_loss(clone(x), y), weights, create_graph=True)
        adapt(clone, {id(weight): gradient for weight, gradient in zip(weights, found, strict=True)})
    x, y = data()
    loss = nn.functional.mse_loss(clone(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
say(losses, network=network)
