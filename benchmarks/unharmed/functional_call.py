"""Compute with a model's weights replaced by others for one call."""

import torch
from ending import data, model, say, train

network = model()
losses = train(network)
x, y = data()
doubled = {name: 2 * weight for name, weight in network.state_dict().items()}
losses.append(torch.func.functional_call(network, doubled, (x,)).sum().item())
losses += train(network)
say(losses, network=network)
