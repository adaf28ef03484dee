"""Import the program's own modules from PYTHONPATH, which have the names of other modules."""

import click
import psutil
from ending import model, say, train

import profiler

network = model()
say(click.WHOSE, profiler.WHOSE, psutil.WHOSE, train(network), network=network)
