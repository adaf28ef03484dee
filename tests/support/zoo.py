"""A program that copies, pickles and transforms its model in every way, while it trains, and digests each result.

At the end it prints the digests as JSON, with that of the random state: recorded or not, they must be the same.
"""

import copy
import hashlib
import importlib.util
import io
import json
import pickle
import random
import sys
import time
import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
torch.set_num_threads(1)
torch.manual_seed(0)
STEPS = 6
INPUTS = torch.linspace(-1, 1, 8).reshape(2, 4)
ROWS: dict = {}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, inputs):
        return self.down(torch.tanh(self.up(inputs)))


def made(cls, held):
    new = cls.__new__(cls)
    new.__dict__.update(held)
    return new


class Reduced(Net):
    def __reduce__(self):
        return made, (type(self), self.__dict__)


class ReducedEx(Net):
    def __reduce_ex__(self, protocol):
        return made, (type(self), self.__dict__)


class Copied(Net):
    def __copy__(self):
        new = made(type(self), self.__dict__)
        new._modules = dict(self._modules)
        return new


class DeepCopied(Net):
    def __deepcopy__(self, memo):
        return made(type(self), {name: copy.deepcopy(each, memo) for name, each in self.__dict__.items()})


class State(Net):
    def __getstate__(self):
        return dict(self.__dict__)


class Slots(Net):
    __slots__ = ("extra",)


class Asks(Net):
    def __getattr__(self, name):
        return super().__getattr__(name)


class Own(Net):
    """A module that defines the attribute that the profiler uses."""

    def _compiled_call_impl(self, inputs):
        return 2 * self._call_impl(inputs)


class Tree(nn.Module):
    """A root whose inner modules are of the same class."""

    def __init__(self, depth=3):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 1))
        self.inner = Tree(depth - 1) if depth else None

    def forward(self, inputs):
        return inputs @ self.weight + (self.inner(inputs) if self.inner is not None else 0)


KINDS = (Net, Reduced, ReducedEx, Copied, DeepCopied, State, Slots, Asks, Own, Tree)


def digest(*values):
    found = hashlib.sha256()
    for value in values:
        if isinstance(value, torch.Tensor):
            value = value.detach().double().numpy().tobytes()
        found.update(value if isinstance(value, bytes) else repr(value).encode())
    return found.hexdigest()[:16]


def trained(model, steps=STEPS, call=None):
    optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.1)
    for _ in range(steps):
        loss = (call or model)(torch.randn(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss


def other(model):
    """Overwrite the model's weights; return it."""
    with torch.no_grad():
        for each in model.parameters():
            each.copy_(torch.linspace(-2, 2, each.numel()).reshape(each.shape))
    return model


# ---- copies and derived modules ----


def by_new(model):
    new = object.__new__(type(model))
    new.__dict__ = dict(model.__dict__)
    return detached(new)


def by_update(model):
    return detached(made(type(model), model.__dict__))


def detached(new):
    """Give a shallow copy its own weights, at every depth; return it."""
    new.__dict__["_parameters"] = {
        name: nn.Parameter(each.detach().clone()) for name, each in new._parameters.items() if each is not None
    }
    new.__dict__["_modules"] = {
        name: None if each is None else detached(made(type(each), each.__dict__)) for name, each in new._modules.items()
    }
    return new


def cloned(model):
    """Return a clone as learn2learn makes it: the weights stay part of the graph."""
    new = model.__new__(type(model))
    new.__dict__ = model.__dict__.copy()
    new._parameters = {name: each if each is None else each.clone() for name, each in new._parameters.items()}
    new._modules = {name: each if each is None else cloned(each) for name, each in new._modules.items()}
    return new


def through(pickler):
    return lambda model: pickle.loads(pickler.dumps(model))


def saved(model):
    buffer = io.BytesIO()
    torch.save(model, buffer)
    assert b"profile_train" not in buffer.getvalue()
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


def adapted(model):
    """Take a step of meta-learning; return the adapted clone."""
    new = cloned(model)
    weights = list(new.parameters())
    gradients = torch.autograd.grad(new(INPUTS).square().mean(), weights, create_graph=True, allow_unused=True)
    owners = [(each, name) for each in new.modules() for name in each._parameters]
    for (each, name), gradient in zip(owners, gradients, strict=True):
        if gradient is not None:
            each._parameters[name] = each._parameters[name] - 0.5 * gradient
    return new


def patched(model):
    """Return a copy as `higher` makes it: its class is replaced with one whose parameters are given."""
    new = copy.deepcopy(model)
    new.__class__ = type(f"Patched{type(model).__name__}", (type(model),), {})
    return new


def averaged(model):
    ema = torch.optim.swa_utils.AveragedModel(model)
    ema.update_parameters(model)
    return ema


def replica(model):
    new = model._replicate_for_data_parallel()
    return detached(new)


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": through(pickle),
    "torch.save": saved,
    "object.__new__": by_new,
    "__dict__.update": by_update,
    "clone_module": cloned,
    "adapted": adapted,
    "patched": patched,
    "AveragedModel": averaged,
    "replica": replica,
    "copy": lambda model: detached(copy.copy(model)),
}
for name in ("cloudpickle", "dill"):
    if importlib.util.find_spec(name):
        COPIES[name] = through(__import__(name))


# ---- other uses of models ----


def functional(model):
    weights = {name: value * 2 for name, value in model.state_dict().items()}
    return torch.func.functional_call(model, weights, (INPUTS,))


def vmapped(model):
    stacked = {name: torch.stack([value, value * 3]) for name, value in model.state_dict().items()}
    return torch.func.vmap(lambda weights: torch.func.functional_call(model, weights, (INPUTS,)))(stacked)


def jacobian(model):
    weights = dict(model.named_parameters())
    found = torch.func.jacrev(lambda given: torch.func.functional_call(model, given, (INPUTS,)))(weights)
    return torch.cat([each.flatten() for each in found.values()])


def scripted(model):
    script = torch.jit.script(model)
    buffer = io.BytesIO()
    torch.jit.save(script, buffer)
    buffer.seek(0)
    assert torch.equal(torch.jit.load(buffer)(INPUTS), script(INPUTS))
    return trained(script)


def packaged(model):
    buffer = io.BytesIO()
    with torch.package.PackageExporter(buffer) as exporter:
        exporter.extern("**")
        exporter.save_pickle("model", "model.pkl", nn.Sequential(nn.Linear(4, 1)))
    assert b"profile_train" not in buffer.getvalue()
    buffer.seek(0)
    loaded = torch.package.PackageImporter(buffer).load_pickle("model", "model.pkl")
    return other(loaded)(INPUTS)


def parametrized(model):
    model = copy.deepcopy(model)
    nn.utils.parametrizations.weight_norm(model.up)
    loss = trained(model)
    nn.utils.parametrize.remove_parametrizations(model.up, "weight")
    return loss + trained(model)


def changed(model):
    """Train a root before and after its class changes, as `fully_shard` changes it."""
    model = copy.deepcopy(model)
    before = trained(model)
    model.__class__ = type(f"FSDP{type(model).__name__}", (type(model),), {})
    return before + trained(model)


def in_place(model):
    model = copy.deepcopy(model)
    model.compile(backend="eager")
    loss = trained(model)
    new = copy.deepcopy(model)
    return loss + other(new)(INPUTS).sum() + other(detached(made(type(new), new.__dict__)))(INPUTS).sum()


def compiled_call(x):
    return torch.autograd.grad((x * x).sum(), x)[0]


def script_gradient(model):
    @torch.jit.script
    def gradient(x):
        found = torch.autograd.grad([(x * x).sum()], [x])[0]
        assert found is not None
        return found

    @torch.jit.script
    def backward(x):
        torch.autograd.backward([(x * x).sum()])
        return x

    x = torch.ones(3, requires_grad=True)
    return gradient(x) + backward(x).grad


OTHERS = {
    "functional_call": functional,
    "vmap": vmapped,
    "jacrev": jacobian,
    "fx": lambda model: other(torch.fx.symbolic_trace(model))(INPUTS),
    "export": lambda model: torch.export.export(model, (INPUTS,)).module()(INPUTS),
    "trace": lambda model: torch.jit.trace(model, INPUTS)(INPUTS),
    "script": scripted,
    "script of gradients": script_gradient,
    "package": packaged,
    "parametrize": parametrized,
    "another class": changed,
    "compile in place": in_place,
    "fullgraph": lambda model: torch.compile(model, backend="eager", fullgraph=True)(INPUTS),
    "fullgraph gradient": lambda model: torch.compile(compiled_call, backend="eager", fullgraph=True)(
        torch.ones(3, requires_grad=True)
    ),
    "share_memory": lambda model: copy.deepcopy(model).share_memory()(INPUTS),
    "dict": lambda model: sorted(vars(model)),
    "state": lambda model: list(model.state_dict()),
    "names in a pickle": lambda model: b"_compiled_call_impl" in pickle.dumps(model),
}


def row(name, make, model):
    torch.manual_seed(1)
    try:
        before = model(INPUTS)
        found = make(model)
        ROWS[name] = digest(before, found, model(INPUTS), *model.state_dict().values())
    except Exception as error:  # noqa: BLE001 - the same with us and without us
        ROWS[name] = f"{type(error).__name__}: {error}"


def used(way):
    """Return a function that computes with the copy's own weights and trains the copy."""

    def make(model):
        new = way(model)
        given = new(INPUTS)
        if way in (cloned, adapted):
            return given
        return torch.cat([given.flatten(), other(new)(INPUTS).flatten(), trained(new).reshape(1)])

    return make


def spawned(model, queue):
    queue.put(model(INPUTS).tolist())


def main():
    random.seed(0)
    models = {kind.__name__: kind() for kind in KINDS}
    together = nn.ModuleList(models.values())
    # This makes all of them roots before the first copy is made.
    loss = trained(together, call=lambda inputs: torch.stack([model(inputs).square().mean() for model in together]))
    time.sleep(0.6)  # the agent checks its roots twice a second
    loss += trained(together, call=lambda inputs: torch.stack([model(inputs).square().mean() for model in together]))
    ROWS["training"] = digest(loss, *together.state_dict().values())
    for kind, model in models.items():
        for name, way in COPIES.items():
            row(f"{kind}, {name}", used(way), model)
    for name, make in OTHERS.items():
        row(name, make, models["Net"])
    context = torch.multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    child = context.Process(target=spawned, args=(models["Net"].share_memory(), queue))
    child.start()
    ROWS["spawn"] = str(queue.get())
    child.join()
    ROWS["random"] = digest(torch.get_rng_state().numpy().tobytes(), random.random())
    json.dump(ROWS, sys.stdout)


if __name__ == "__main__":
    main()
