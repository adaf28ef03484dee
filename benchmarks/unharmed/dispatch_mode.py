"""Count operators by a TorchDispatchMode."""

from collections import Counter

from ending import model, say, train
from torch.utils._python_dispatch import TorchDispatchMode


class Counting(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen[str(function)] += 1
        return function(*args, **(kwargs or {}))


network = model()
with Counting() as counted:
    losses = train(network)
say(losses, sorted(counted.seen.items()), network=network)
