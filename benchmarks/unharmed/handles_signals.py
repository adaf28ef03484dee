"""Handle signals of its own: an alarm in training."""

import signal

from ending import model, say, train

rung = []
signal.signal(signal.SIGALRM, lambda number, frame: rung.append(number))
signal.setitimer(signal.ITIMER_REAL, 0.05)
network = model()
losses = train(network)
while not rung:
    signal.pause()
say(losses, rung, network=network)
