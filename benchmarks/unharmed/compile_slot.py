"""Give one instance a compiled call of its own and take it away."""

from ending import model, say, train

network = model()
losses = train(network)
network.compile(backend="eager")
losses += train(network)
say(losses, network=network)
