"""Pickle a whole model in training, load it, and train on."""

import pickle

from ending import model, say, train

network = model()
losses = train(network)
loaded = pickle.loads(pickle.dumps(network))
say(losses, train(loaded), train(network), network=loaded)
