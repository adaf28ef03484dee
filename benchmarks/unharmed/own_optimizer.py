"""Train with an optimizer of its own that wraps another."""

import torch
from ending import model, say, train


class Lookahead(torch.optim.Optimizer):
    def __init__(self, inner):
        self.inner = inner
        self.slow = [weight.detach().clone() for group in inner.param_groups for weight in group["params"]]
        super().__init__(inner.param_groups, {})

    def step(self, closure=None):
        loss = self.inner.step(closure)
        weights = [weight for group in self.inner.param_groups for weight in group["params"]]
        for weight, slow in zip(weights, self.slow, strict=True):
            slow += 0.5 * (weight.detach() - slow)
            weight.data.copy_(slow)
        return loss


network = model()
optimizer = Lookahead(torch.optim.SGD(network.parameters(), lr=0.01))
losses = train(network, optimizer)
say(losses, sorted(optimizer.__dict__), network=network)
