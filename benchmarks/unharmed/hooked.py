"""Use forward and backward hooks, and look at what they are given."""

from ending import model, say, train

network = model()
seen = []
network.register_forward_pre_hook(lambda part, inputs: seen.append(len(inputs)))
network.register_forward_hook(lambda part, inputs, out: out * 0.5)
network[0].register_full_backward_hook(lambda part, inward, outward: seen.append(len(outward)))
losses = train(network)
say(losses, seen, list(network._forward_hooks), network=network)
