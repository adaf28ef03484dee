"""A training program whose own classes count each call of their methods.

At the end it prints the counts, its losses, the random state and the depth of the stack as JSON. They must be the same,
recorded or not; only the stack may be up to two frames deeper.
"""

import collections
import dataclasses
import functools
import itertools
import json
import logging
import os
import pickle
import random
import sys
import time
import warnings

import numpy
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler
from torch.utils.data.dataloader import _BaseDataLoaderIter

warnings.simplefilter("ignore")
torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(0)
numpy.random.seed(0)
calls: collections.Counter[str] = collections.Counter()
depths: dict[str, list[int]] = {}

METHODS = (
    *("__len__", "__iter__", "__next__", "__getitem__", "__contains__", "__hash__", "__eq__", "__bool__", "__repr__"),
    *("__str__", "__index__", "__int__", "__getattr__", "__getattribute__", "__setattr__", "__dir__", "__del__"),
    *("__call__", "__array__", "__float__", "__length_hint__", "__reduce_ex__", "__format__", "__sizeof__"),
    *("items", "keys", "values", "get", "parameters", "named_parameters", "modules", "named_modules", "children"),
    *("buffers", "state_dict", "numel", "size", "dim", "element_size", "stride", "fetch", "qsize", "get_scale"),
    *("zero_grad", "is_floating_point", "nelement", "detach", "numpy", "data_ptr", "train", "eval"),
)
PROPERTIES = (
    *("param_groups", "state", "defaults", "shape", "dtype", "device", "grad", "requires_grad", "is_leaf", "is_cuda"),
    *("layout", "nbytes", "ndim", "training", "batch_size", "num_workers", "dataset", "sampler", "batch_sampler"),
    *("last_epoch", "_enabled", "_dataset_fetcher", "__dict__"),
)


def counted(cls, properties=PROPERTIES, without=()):
    """Return the class with counters on its methods, and on those of its attributes that are descriptors."""

    def count(name, plain):
        @functools.wraps(plain)
        def method(*args, **kwargs):
            calls[f"{cls.__name__}.{name}"] += 1
            return plain(*args, **kwargs)

        return method

    for name in METHODS:
        plain = getattr(cls, name, None)
        if plain is not None and name not in without:
            setattr(cls, name, count(name, plain))
    for name in properties:
        plain = getattr(cls, name, None)
        if hasattr(type(plain), "__get__") and hasattr(plain, "__set__"):
            setattr(cls, name, property(*(count(name, getattr(plain, each)) for each in ("__get__", "__set__"))))
    return cls


def held(name):
    """Return a property that stores its value under another name in the instance dictionary."""

    def read(self):
        calls[f"{type(self).__name__}.{name}"] += 1
        return object.__getattribute__(self, "_own_" + name)

    def write(self, value):
        object.__setattr__(self, "_own_" + name, value)

    return property(read, write)


def deep(name):
    """Record the number of frames on the stack."""
    frame, count = sys._getframe(1), 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    depths.setdefault(name, []).append(count)


def named(function):
    """Return the name of a called function; for the reader of an attribute, the attribute's name."""
    owner = getattr(function, "__self__", None)
    return f"{getattr(owner, '__name__', '')} {getattr(function, '__name__', function)}"


# ---- data ----


@counted
class Rows(Dataset):
    def __getitem__(self, index):
        deep("dataset")
        return torch.tensor(list(map(float, range(index, index + 4)))) / 64 + torch.rand(4) * random.random()

    def __len__(self):
        return 48 + 0 * random.randrange(9)


@counted
class Stream(IterableDataset):
    def __iter__(self):
        return (torch.rand(4) for _ in range(len(self)))

    def __len__(self):
        return 16 + 0 * random.randrange(9)


@counted
class Order(Sampler):
    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        yield from torch.randperm(len(self.rows)).tolist()

    def __len__(self):
        return len(self.rows) + 0 * random.randrange(9)


@counted
class Buckets(Sampler):
    def __init__(self, rows):
        self.rows, self.batch_size = rows, Width(8)

    def __iter__(self):
        return Drawn(torch.randperm(len(self.rows)).split(8))

    def __len__(self):
        return 6 + 0 * random.randrange(9)


@counted
class Drawn:
    def __init__(self, groups):
        self.left = list(groups)

    def __iter__(self):
        return self

    def __next__(self):
        if not self.left:
            raise StopIteration
        return self.left.pop().tolist()


@counted
class Width(int):
    """An integer class of the program's own."""


@counted
class Lazy(collections.abc.Mapping):
    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, key):
        return self.rows + torch.randn_like(self.rows)

    def __iter__(self):
        return iter(["x"])

    def __len__(self):
        return 1


@counted
class Slices(collections.abc.Sequence):
    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, index):
        return self.rows[index] + torch.rand(4)

    def __len__(self):
        return len(self.rows) + 0 * random.randrange(9)


@counted
class Named(dict):
    pass


@counted
class Odd:
    """An element of an array of objects."""


@counted
class Loader(DataLoader):
    def __len__(self):
        return super().__len__() + 0 * random.randrange(9)


class Collate:
    def __init__(self, make):
        self.make = make

    def __call__(self, samples):
        deep("collate")
        return self.make(torch.stack(samples))


def odd(rows):
    objects = numpy.empty((len(rows), 8), dtype=object)
    objects.fill(Odd())
    return Named(x=rows, mask=objects)


# ---- models ----


@counted
class Plain(torch.Tensor):
    """A subclass without its own dispatch."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        calls[f"Plain function {named(function)}"] += 1
        return super().__torch_function__(function, types, args, kwargs or {})


class Wrapping(torch.Tensor):
    """A subclass that computes even its size itself."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held, requires_grad=False):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            dtype=held.dtype,
            device=held.device,
            requires_grad=requires_grad,
            dispatch_sizes_strides_policy="sizes",
            dispatch_device=True,
        )

    def __init__(self, held, requires_grad=False):
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        calls[f"Wrapping dispatch {function}"] += 1
        if function in (torch.ops.aten.add_.Tensor, torch.ops.aten.copy_.default):
            function(*pytree.tree_map_only(cls, lambda each: each.held, args), **(kwargs or {}))
            return args[0]
        found = function(*pytree.tree_map_only(cls, lambda each: each.held, (args, kwargs or {}))[0], **(kwargs or {}))
        return pytree.tree_map_only(torch.Tensor, cls, found)


class Asked(nn.Module):
    """A module whose subclasses count every access to it."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 1)

    def forward(self, rows):
        deep("forward")
        return self.linear(rows)


@counted
class Closed(Asked):
    pass


Open = counted(type("Open", (Asked,), {}), without=("__getattribute__", "__call__"))


class Subclassed(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 1).as_subclass(Plain))

    def forward(self, rows):
        return rows @ self.weight


class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(Wrapping(torch.ones(4, 1)))

    def forward(self, rows):
        return Wrapping(rows) @ self.weight


# ---- the rest of the loop ----


@counted
class Optimizer(torch.optim.SGD):
    param_groups, state, defaults = held("param_groups"), held("state"), held("defaults")


@counted
class Schedule(torch.optim.lr_scheduler.LambdaLR):
    pass


@counted
class Scaler(torch.amp.GradScaler):
    pass


class Functions(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        calls[f"function mode {named(function)}"] += 1
        return function(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        calls[f"dispatch mode {function}"] += 1
        return function(*args, **(kwargs or {}))


@counted
class Failure(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    """An error whose attributes cannot be set in the usual way."""

    code: int


def failing(kind):
    def fail(*_):
        raise kind(3)

    return fail


# ---- training ----

losses: list[float] = []
caught: list[tuple[object, ...]] = []
rows = Rows()
loaders = (
    Loader(rows, batch_sampler=Buckets(rows), collate_fn=Collate(Lazy)),
    Loader(rows, batch_size=8, sampler=Order(rows), collate_fn=Collate(Slices)),
    Loader(rows, batch_size=8, collate_fn=Collate(odd)),
    Loader(Stream(), batch_size=4, collate_fn=Collate(lambda each: each)),
)
SHAPES = {
    Lazy: lambda batch: batch["x"],
    Slices: lambda batch: torch.stack(list(batch)),
    Named: lambda batch: batch["x"],
}
models = (Wrapped(), Open(), Subclassed(), Closed())
optimizers = [Optimizer(model.parameters(), lr=0.01, foreach=False) for model in models]
schedules = [Schedule(optimizer, lambda epoch: 1 / (1 + epoch)) for optimizer in optimizers]
scaler = Scaler("cpu")


def train(batch):
    for model, optimizer in zip(models, optimizers, strict=True):
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        if type(model) is Wrapped:
            loss.backward()
            optimizer.step()
            loss = loss.held
        elif type(model) is Open:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.register_hook(lambda gradient: deep("backward"))
            loss.backward()
            optimizer.step(lambda: deep("closure"))
        losses.append(loss.item())


def patch(cls):
    plain = cls.__next__

    def patched(self):
        calls["next"] += 1
        return plain(self)

    cls.__next__ = patched


for epoch in range(3):
    if epoch == 1:
        patch(_BaseDataLoaderIter)
    for loader in loaders:
        for batch in loader:
            batch = SHAPES.get(type(batch), lambda each: each)(batch)
            if epoch % 2:
                with Functions(), Operators():
                    train(batch)
            else:
                train(batch)
            time.sleep(0.005)
    for schedule in schedules:
        schedule.step()
    for kind in (Failure, Frozen):
        try:
            next(iter(DataLoader(rows, batch_size=4, collate_fn=failing(kind))))
        except kind as error:
            caught.append(error.args)
        model = Open()
        model.forward = failing(kind)
        try:
            model(torch.ones(1, 4))
        except kind as error:
            caught.append(error.args)

same = [
    pickle.loads(pickle.dumps(each)) is each
    for each in (
        *(os.fsync, torch.set_num_threads, logging.Handler.handle, DataLoader.__iter__, torch.set_anomaly_enabled),
        *(torch.autograd.backward, torch.save),
    )
]
iterator = iter(loaders[0])
next(iterator)
ours = sorted(itertools.chain.from_iterable(vars(each) for each in (iterator, iterator._dataset_fetcher)))
states = torch.get_rng_state().sum().item(), random.random(), numpy.random.rand()
del model, loader, iterator
print(
    json.dumps(
        {
            "calls": calls,
            "losses": losses,
            "states": states,
            "same": same,
            "ours": ours,
            "caught": caught,
            "depths": depths,
        }
    )
)
