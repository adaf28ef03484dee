"""Set logging up, and a handler that keeps what it is given."""

import logging
import pickle

from ending import model, say, train

kept = []


class Keep(logging.Handler):
    def emit(self, record):
        kept.append(record.getMessage())


logging.basicConfig(level=logging.DEBUG, handlers=[Keep()])
network = model()
for loss in train(network):
    logging.info("loss %.6f", loss)
say(kept, pickle.loads(pickle.dumps(logging.Handler.handle)) is logging.Handler.handle, network=network)
