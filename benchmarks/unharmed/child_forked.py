"""Fork after training and train on in both."""

import os

from ending import model, say, train

network = model()
say(train(network), network=network)
child = os.fork()
if child == 0:
    say(train(network), network=network)
    os._exit(0)
print("child", os.waitpid(child, 0)[1])
say(train(network), network=network)
