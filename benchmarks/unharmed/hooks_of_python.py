"""Set its own hooks for exceptions, warnings, and unraisable errors."""

import sys
import warnings

from ending import model, say, train

sys.excepthook = lambda kind, error, trace: print("hooked", kind.__name__, error)
warnings.showwarning = lambda *args, **kwargs: print("warned", args[0])
network = model()
losses = train(network)
warnings.warn("look out", stacklevel=1)
say(losses, network=network)
raise LookupError("nothing there")
