"""Train on tensors of a subclass that counts the functions called on it."""

import torch
from ending import data, model, say, train


class Counted(torch.Tensor):
    seen = 0

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        Counted.seen += 1
        return super().__torch_function__(function, types, args, kwargs or {})


network = model()
x, y = data()
losses = train(network, batch=(x.as_subclass(Counted), y.as_subclass(Counted)))
say(losses, Counted.seen, network=network)
