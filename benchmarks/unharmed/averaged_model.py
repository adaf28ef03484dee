"""Keep an exponential moving average by AveragedModel."""

import torch
import torch.optim.swa_utils
from ending import data, model, say, train

network = model()
averaged = torch.optim.swa_utils.AveragedModel(network, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
losses = []
for _ in range(20):
    losses += train(network, optimizer, steps=1)
    averaged.update_parameters(network)
x, _ = data()
say(losses, [averaged(x).sum().item()], network=averaged)
