"""Hooks in Python at the least cost: at the agent's four places, they read the clock twice and keep a tuple."""

import collections
import functools
import threading
import time

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import dataloader


class Hooks:
    """Hooks around the fetch, the model's call, the backward pass and the optimizer's step, active inside `with`."""

    def __init__(self, model):
        self._model = model
        self._undo = []

    def __enter__(self):
        put = collections.deque(maxlen=1 << 16).append
        self._wrap(dataloader._BaseDataLoaderIter, "__next__", put)
        self._wrap(torch.autograd, "_engine_run_backward", put)
        if type(self._model).forward is not torch.nn.Module.forward:
            call = _timed(self._model._call_impl, put)
            self._model.__dict__["_compiled_call_impl"] = call
            self._undo.append(lambda: self._model.__dict__.pop("_compiled_call_impl"))
        begun = []
        before = register_optimizer_step_pre_hook(lambda *_: begun.append(time.perf_counter_ns()))
        after = register_optimizer_step_post_hook(
            lambda *_: put((threading.get_ident(), begun.pop(), time.perf_counter_ns()))
        )
        self._undo += [before.remove, after.remove]

    def __exit__(self, *_):
        for undo in self._undo:
            undo()
        self._undo.clear()

    def _wrap(self, owner, name, put):
        plain = getattr(owner, name)
        setattr(owner, name, _timed(plain, put))
        self._undo.append(lambda: setattr(owner, name, plain))


def _timed(plain, put):
    clock, ident = time.perf_counter_ns, threading.get_ident

    @functools.wraps(plain)
    def timed(*args, **kwargs):
        begin = clock()
        result = plain(*args, **kwargs)
        put((ident(), begin, clock()))
        return result

    return timed
