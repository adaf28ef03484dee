"""Import modules of the program from PYTHONPATH that are named as others are."""

import click
import psutil
from ending import model, say, train

import profiler

network = model()
say(click.WHOSE, profiler.WHOSE, psutil.WHOSE, train(network), network=network)
