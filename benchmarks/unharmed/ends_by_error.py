"""End by an exception in training."""

from ending import model, say, train

network = model()
say(train(network), network=network)
raise RuntimeError("the loss became NaN")
