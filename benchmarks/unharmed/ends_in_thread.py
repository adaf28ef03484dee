"""Train in a thread while the main thread waits."""

import threading

from ending import model, say, train

network, losses = model(), []
thread = threading.Thread(target=lambda: losses.extend(train(network)))
thread.start()
thread.join()
say(losses, threading.active_count(), network=network)
