"""Forbid every file outside the folder by an audit hook, and train on."""

import os
import sys
import time

import torch
from ending import model, say, train

here = os.getcwd()


def forbid(event, args):
    if event in ("os.listdir", "os.rename", "os.symlink", "subprocess.Popen"):
        raise RuntimeError(f"{event} is forbidden")
    if event == "open" and not str(args[0]).startswith(here):
        raise RuntimeError(f"{args[0]} is forbidden")


network = model()
losses = train(network)
sys.addaudithook(forbid)
end = time.monotonic() + 1
while time.monotonic() < end:  # long enough for facts to be due
    train(torch.nn.Linear(16, 1), steps=1, batch=(torch.ones(2, 16), torch.ones(2, 1)))
say(losses, train(network), network=network)
