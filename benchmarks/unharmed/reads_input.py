"""Read its standard input while it trains."""

import sys

from ending import model, say, train

network = model()
losses = train(network)
say(sys.stdin.read(), losses, network=network)
