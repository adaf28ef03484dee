"""Copy a model by its __dict__, as meta-learning libraries do, and train the copy."""

import copy

from ending import model, say, train

network = model()
before = train(network)
clone = network.__class__.__new__(network.__class__)
clone.__dict__ = {
    **network.__dict__,
    "_modules": {name: copy.deepcopy(part) for name, part in network._modules.items()},
}
for parameter in clone.parameters():
    parameter.data.mul_(0.5)
say(before, train(clone), network=clone)
