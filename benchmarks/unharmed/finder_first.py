"""Put an import finder first, import torch lazily, and check that the finder is still first."""

import importlib.util
import sys


class Counts:
    """A finder that counts requests and finds nothing."""

    asked = 0

    def find_spec(self, name, path=None, target=None):
        self.asked += name == "torch"


finder = Counts()
sys.meta_path.insert(0, finder)
spec = importlib.util.find_spec("torch")
spec.loader = loader = importlib.util.LazyLoader(spec.loader)
sys.modules["torch"] = module = importlib.util.module_from_spec(spec)
loader.exec_module(module)

from ending import model, say, train  # noqa: E402

network = model()
say(train(network), finder.asked, sys.meta_path[0] is finder, network=network)
