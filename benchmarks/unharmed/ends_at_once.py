"""End by os._exit without any cleaning up."""

import os

from ending import model, say, train

network = model()
say(train(network), network=network)
os._exit(5)
