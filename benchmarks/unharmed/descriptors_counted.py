"""Count open descriptors before and after training, and print the number of the next one."""

import os

from ending import model, say, train

network = model()
before = os.listdir("/proc/self/fd")
losses = train(network)
after = os.listdir("/proc/self/fd")
with open(__file__) as file:
    say(losses, len(after) - len(before), file.fileno(), network=network)
