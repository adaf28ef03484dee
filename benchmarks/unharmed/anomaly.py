"""Train under anomaly detection and print a failing backward pass."""

import warnings

import torch
from ending import model, say, train

network = model()
with torch.autograd.set_detect_anomaly(True), warnings.catch_warnings(record=True) as caught:
    losses = train(network, steps=5)
    try:
        torch.sqrt(network(torch.zeros(1, 16)) * 0 - 1).sum().backward()
    except RuntimeError as error:
        say(str(error))
say(losses, len(caught), network=network)
