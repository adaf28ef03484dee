"""Train under sys.setprofile and print what it saw of its own file."""

import sys

from ending import model, say, train

seen = []


def watch(frame, event, argument):
    if event == "call" and frame.f_code.co_filename == __file__:
        seen.append(frame.f_code.co_name)


def own(x):
    return x * 2


network = model()
sys.setprofile(watch)
losses = [own(loss) for loss in train(network)]
sys.setprofile(None)
say(losses, seen, network=network)
