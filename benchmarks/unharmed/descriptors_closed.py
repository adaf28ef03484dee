"""Close every descriptor that it did not open, as daemons do."""

import os

from ending import model, say, train

network = model()
losses = train(network)
os.closerange(3, 256)
say(losses, train(network), network=network)
