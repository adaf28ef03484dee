"""Handle an interrupt and finish."""

import os
import signal
import time

from ending import model, say, train

network = model()
try:
    train(network)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)
except KeyboardInterrupt:
    say("interrupted", train(network), network=network)
