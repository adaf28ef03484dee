"""Train on in an exit handler."""

import atexit

from ending import model, say, train

network = model()
atexit.register(lambda: say(train(network), network=network))
say(train(network))
