"""Hold functions of torch and os in a class, and compare them before and after their use."""

import io
import os
import tempfile

import torch
from ending import model, say, train


class Backend:
    """Looks its functions up by name; built-in ones are not bound to it."""

    sync = os.fsync
    threads = torch.set_num_threads
    anomaly = torch.set_anomaly_enabled
    save = staticmethod(torch.save)


def functions():
    return os.fsync, torch.set_num_threads, torch.set_anomaly_enabled, torch.save, torch.autograd.backward


before = functions()
backend = Backend()
backend.threads(1)
backend.anomaly(False)
with tempfile.TemporaryFile() as file:
    backend.sync(file.fileno())
network = model()
losses = train(network)
backend.save(network.state_dict(), io.BytesIO())
say(losses, [one is other for one, other in zip(before, functions(), strict=True)], network=network)
