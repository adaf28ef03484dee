"""Train as a module that is run by its name."""

from ending import model, say, train

if __name__ == "__main__":
    network = model()
    say(train(network), __name__, __spec__.name if __spec__ else None, network=network)
