"""Train with deterministic algorithms and a generator of its own."""

import torch
from ending import model, say, train

torch.use_deterministic_algorithms(True)
generator = torch.Generator().manual_seed(7)
network = model()
x = torch.randn(64, 16, generator=generator)
say(train(network, batch=(x, x.sum(1, keepdim=True))), int(generator.initial_seed()), network=network)
