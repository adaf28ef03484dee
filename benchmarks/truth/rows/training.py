"""Shared by the rows' programs: their arguments, and the steps of a loop, timed by its own clock."""

import argparse
import os
import sys
import time
from contextlib import contextmanager, nullcontext
from itertools import islice

import torch
from models import task

WARM_UP = 10
"""Steps that the clock leaves out."""


def begin(doc, model="mlp-768", steps=60, threads=1):
    """Return (arguments, task) of a row whose docstring says what is wrong with it."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--fixed", action="store_true", help="with the cure")
    parser.add_argument("--model", default=model)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--watch", choices=WATCHES, default="nobody", help="with the lines that a profiler requires")
    cure = parser.add_argument_group("with --fixed, instead of the row's own number")
    cure.add_argument("--workers", type=int)
    cure.add_argument("--prefetch", type=int)
    cure.add_argument("--every", type=int, help="steps")
    cure.add_argument("--threads", type=int)
    args = parser.parse_args()
    if threads:
        torch.set_num_threads(threads)
    return args, task(args.model)


def steps(loader, args, model):
    """Yield (number, batch) of every step, for as many epochs as needed. At the end, the first rank prints to stderr
    how long a step took, counted from the end of the tenth."""
    start = None
    with WATCHES[args.watch](model) as step:
        for number, batch in enumerate(islice(forever(loader), args.steps), 1):
            with step():
                yield number, batch
            if number == WARM_UP:
                start = time.perf_counter()
    if start is not None and os.environ.get("RANK", "0") == "0":
        took = (time.perf_counter() - start) / (args.steps - WARM_UP)
        print(f"{took * 1e3:.4f} ms a step", file=sys.stderr)


def forever(loader):
    while True:
        yield from loader


def cores():
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def nobody(model):
    yield nullcontext


@contextmanager
def traceml(model):
    import traceml_ai

    traceml_ai.init(mode="auto")
    yield lambda: traceml_ai.trace_step(model)


@contextmanager
def gpuprof(model):
    import gpuprof

    with gpuprof.profile("truth"):
        yield nullcontext


WATCHES = {watch.__name__: watch for watch in (nobody, traceml, gpuprof)}
