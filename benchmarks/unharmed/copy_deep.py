"""Keep a deep copy as a frozen target network, as in reinforcement learning."""

import copy

from ending import data, model, say, train

online = model()
losses = train(online)
target = copy.deepcopy(online)
losses += train(online)
x, _ = data()
say(losses, [target(x).sum().item(), online(x).sum().item()], network=target)
