"""Count functions by a TorchFunctionMode."""

from ending import model, say, train
from torch.overrides import TorchFunctionMode


class Counting(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.seen += 1
        return function(*args, **(kwargs or {}))


network = model()
with Counting() as counted:
    losses = train(network)
say(losses, counted.seen, network=network)
