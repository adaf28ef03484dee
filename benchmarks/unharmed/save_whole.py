"""Save whole model and optimizer with torch.save and load them again."""

import os

import torch
from ending import model, say, train

network = model()
optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
losses = train(network, optimizer)
torch.save({"model": network, "optimizer": optimizer, "state": network.state_dict()}, "saved.pt")
loaded = torch.load("saved.pt", weights_only=False)
os.remove("saved.pt")
say(losses, train(loaded["model"], loaded["optimizer"]), network=loaded["model"])
