"""Change into a folder and remove it."""

import os
import tempfile

from ending import model, say, train

network = model()
losses = train(network)
folder = tempfile.mkdtemp()
os.chdir(folder)
os.rmdir(folder)
say(losses, train(network), network=network)
