"""Train two models in two threads at a time."""

import threading

from ending import data, model, say, train

networks = [model(), model()]
batch = data(64)
found = [None, None]


def work(number):
    found[number] = train(networks[number], batch=batch)


threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
say(*found, network=networks[1])
