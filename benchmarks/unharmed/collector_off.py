"""Turn the garbage collector off and count its objects."""

import gc

from ending import model, say, train

gc.disable()
network = model()
losses = train(network)
gc.callbacks.append(lambda phase, info: None)
say(losses, gc.isenabled(), gc.get_threshold(), network=network)
