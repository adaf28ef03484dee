"""Import torch late, with a finder that counts requests."""

import importlib.util
import sys

asked = []


class Counting:
    """A finder that finds nothing."""

    def find_spec(self, name, path=None, target=None):
        """Count."""
        if name in ("torch", "torch.optim", "ending"):
            asked.append(name)


there = importlib.util.find_spec("torch") is not None
sys.meta_path.insert(0, Counting())
from ending import model, say, train  # noqa: E402

network = model()
say(train(network), there, asked, network=network)
