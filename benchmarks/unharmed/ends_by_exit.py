"""End by sys.exit with a status."""

import sys

from ending import model, say, train

network = model()
say(train(network), network=network)
sys.exit(3)
