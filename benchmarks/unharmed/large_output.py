"""Print a megabyte, and binary data."""

import sys

from ending import model, say, train

network = model()
for number in range(20000):
    print("line", number, "x" * 40)
sys.stdout.flush()
sys.stdout.buffer.write(bytes(range(256)))
sys.stdout.buffer.flush()
say(train(network), network=network)
