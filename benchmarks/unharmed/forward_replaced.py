"""Replace the forward of one instance, as adapters do."""

from ending import model, say, train

network = model()
losses = train(network)
plain = network.forward
network.forward = lambda x: plain(x) * 2
losses += train(network)
del network.forward
say(losses, train(network), sorted(network.__dict__), network=network)
