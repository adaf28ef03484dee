"""Modes of the interpreter, and what the program sets up for itself."""

import pytest
from programs import TORCH

LOOP = (
    TORCH
    + """
import torch
torch.set_num_threads(1)
torch.manual_seed(0)

def train(steps=60):
    layer = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(steps):
        loss = layer(torch.ones(2, 4)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(loss.item().hex(), flush=True)
"""
)
ALL = ("--no-report", "--budget", "0.5")


def same(plain, profiled):
    assert (plain.status, plain.out, plain.err) == (profiled.status, profiled.out, profiled.err)


@pytest.mark.parametrize(
    "options",
    [
        ("-W", "error", "-X", "warn_default_encoding"),
        ("-X", "dev", "-B", "-W", "ignore::DeprecationWarning"),
        ("-O", "-u", "-b", "-X", "no_debug_ranges"),  # without -B: otherwise all of torch is compiled each time
    ],
    ids=" ".join,
)
def test_strict_and_unusual_interpreter_options(script, start, start_profiled, options):
    """Warnings are errors from the program's first line on, except for those that torch's own import causes."""
    program = script(
        "import sys, warnings\nstrict = warnings.filters[:]\nwarnings.simplefilter('ignore')\n"
        + LOOP
        + """
from torch.utils.data import DataLoader
warnings.filters[:] = strict
warnings._filters_mutated()
for batch in DataLoader(torch.ones(8, 4), 4, num_workers=1): pass
train()
torch.save([], "model.pt")
print(sys.flags, warnings.filters == strict)
"""
    )
    plain = start("python", *options, program).finish()
    profiled = start_profiled("python", *options, program, options=ALL).finish()

    assert plain.status == 0, plain.err.decode()
    same(plain, profiled)
    assert len(profiled.steps) == 60
    assert not profiled.problems.keys() - {"nvml"}


def test_spawned_workers_resource_tracker_and_exit_order_are_unchanged(script, run_both):
    program = script(
        LOOP
        + """
import atexit, faulthandler, logging, multiprocessing, os, signal, sys, threading
from multiprocessing import resource_tracker, shared_memory
from torch.utils.data import DataLoader

class Log(logging.Handler):
    def emit(self, record): print(record.filename, record.funcName, record.lineno, record.getMessage(), flush=True)

if __name__ == "__main__":
    atexit.register(print, "registered before training")
    logging.basicConfig(stream=sys.stdout, format="%(filename)s %(funcName)s %(lineno)d %(message)s")
    logging.getLogger().addHandler(Log())
    faulthandler.enable()
    multiprocessing.set_start_method("spawn")
    hooks = [sys.excepthook.__name__, sys.unraisablehook.__name__, threading.excepthook.__name__, sys.gettrace()]
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD)]
    block = shared_memory.SharedMemory(create=True, size=64)
    print(sum(batch.sum().item() for batch in DataLoader(torch.ones(8, 4), 4, num_workers=1)))
    train()
    logging.getLogger("program").warning("loss %s", 1)
    block.close(); block.unlink()
    print(hooks, handlers, sys.getrecursionlimit(), threading.active_count(), faulthandler.is_enabled())
    atexit.register(print, "registered after training")
    threading._register_atexit(print, "threads end")
    raise KeyError("an end")
"""
    )
    plain, profiled = run_both(program, options=ALL)

    assert plain.status == 1
    assert b"registered after training\nregistered before training\n" in plain.out
    same(plain, profiled)
    assert len(profiled.steps) == 60
    assert len(profiled.workers) == 1


@pytest.mark.parametrize("way", ["settrace", "setprofile"])
def test_self_tracing_program_sees_the_same_calls(script, run_both, way):
    program = script(
        LOOP
        + f"""
import sys, collections
seen = collections.Counter()
def look(frame, event, argument):
    if event == "call" and frame.f_code.co_filename == __file__:
        seen[frame.f_code.co_name] += 1
    return look
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def forward(self, x): return self.layer(x)
model = Model()
sys.{way}(look)
train(10)
for _ in range(5): model(torch.ones(1, 1))
assert sys.get{way.removeprefix("set")}() is look
sys.{way}(None)
print(dict(seen))
"""
    )
    plain, profiled = run_both(program)

    assert b"'forward': 5" in plain.out
    same(plain, profiled)
    assert len(profiled.steps) == 10
