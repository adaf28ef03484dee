"""Take gradients of samples by torch.func."""

import torch
from ending import data, model, say, train
from torch import nn

network = model()
losses = train(network)
x, y = data()
weights = dict(network.named_parameters())


def loss_of(weights, x, y):
    return nn.functional.mse_loss(torch.func.functional_call(network, weights, (x[None],)), y[None])


each = torch.func.vmap(torch.func.grad(loss_of), (None, 0, 0))(weights, x, y)
say(losses, [gradient.sum().item() for gradient in each.values()], network=network)
