"""Attaching to a program after torch.compile has compiled it: nothing is compiled again, nothing breaks."""

import os
import subprocess
import sys

import pytest
from programs import COMMAND, PATIENCE, Ran, wait_until

pytestmark = pytest.mark.foreign

PROGRAM = """
import collections, json, os, sys, time
import torch
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(0)
folder, *ways = sys.argv[1:]

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)
    def forward(self, inputs): return inputs + self.down(torch.relu(self.up(inputs)))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(32, 1)
    def forward(self, inputs):
        for block in self.blocks: inputs = block(inputs)
        return self.head(inputs)

class Way:
    # One way to compile, with a model of its own.
    def __init__(self, how):
        torch.manual_seed(0)
        model = Net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        call = model

        def update(inputs):
            loss = call(inputs).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        if how == "inductor": call = torch.compile(model)
        if how == "aot_eager": call = torch.compile(model, backend="aot_eager")
        if how == "blocks":
            for block in model.blocks: block.compile(backend="aot_eager")
        if how == "function":
            @torch.compile(backend="aot_eager")
            def call(inputs): return model(inputs)
        if how == "broken":
            @torch.compile(backend="aot_eager")
            def call(inputs):
                hidden = model.blocks[0](inputs)
                torch._dynamo.graph_break()
                return model.head(model.blocks[1](hidden))
        if how == "optimizer":
            step = torch.compile(optimizer.step, backend="aot_eager")
            optimizer.step = lambda: step()
        if how == "step": update = torch.compile(update, backend="aot_eager")
        self.model, self.update, self.call = model, update, call

    def train(self, steps):
        for _ in range(steps): losses.append(self.update(torch.randn(16, 32)).item())
        self.model.eval()
        with torch.no_grad(): losses.append(self.call(torch.randn(16, 32)).square().mean().item())
        self.model.train()

losses = []
def tell():
    counters = torch._dynamo.utils.counters
    compilations = len(torch._dynamo.utils.get_compilation_metrics())
    assert compilations < 64  # torch keeps no more
    print(json.dumps({
        "losses": losses,
        **{name: sorted((key[:80], value) for key, value in counters[name].items())
           for name in ("stats", "graph_break", "recompiles", "unimplemented")},
        "compilations": compilations,
    }), flush=True)

def train(steps):
    for way in ways: way.train(steps)

ways = [Way(how) for how in ways]
train(8)
tell()
open(os.path.join(folder, "compiled"), "w").close()
while not os.path.exists(os.path.join(folder, "go")): time.sleep(0.01)
train(40)
tell()
open(os.path.join(folder, "trained"), "w").close()
while not os.path.exists(os.path.join(folder, "end")): time.sleep(0.01)
train(8)
tell()
"""

UNCACHED = {**os.environ, "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
"""Without compile caches: what an earlier process compiled, torch would neither compile again nor count."""


def run(tmp_path, ways, attached, refused=False):
    """Return what the program printed, and the run folder."""
    here = tmp_path / ("attached" if attached else "alone")
    here.mkdir()
    with (here / "out").open("w+") as output:
        program = subprocess.Popen([sys.executable, "-c", PROGRAM, here, *ways], env=UNCACHED, stdout=output)
        recorder = None
        try:
            wait_until((here / "compiled").exists, "a compiled program")
            if attached:
                recorder = subprocess.Popen(
                    [*COMMAND, "attach", str(program.pid), "--no-report", "--no-windows", "--out", str(here / "run")],
                    stderr=subprocess.PIPE,
                    text=True,
                )
                if refused:
                    assert str(program.pid) in recorder.communicate()[1]
                    assert recorder.returncode == 1
                else:
                    wait_until((here / "run" / "recording.json").exists, "the recording")
            (here / "go").touch()
            wait_until((here / "trained").exists, "the training")
            if recorder is not None and not refused:
                recorder.terminate()  # like Ctrl-C: the recording ends, and the hooks are removed
                recorder.communicate()
                assert recorder.returncode == 0
            (here / "end").touch()
            assert program.wait(PATIENCE) == 0
        finally:
            for process in filter(None, (recorder, program)):
                process.kill()
                process.wait()
    return (here / "out").read_text().splitlines(), Ran(0, b"", b"", here / "run")


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs gdb on other processors")
def test_attaching_to_a_compiled_program_does_not_change_it(tmp_path):
    """Losses, graphs, graph breaks and compilations after each of the three parts: before, attached, after."""
    ways = ("inductor", "aot_eager", "blocks", "function", "broken")
    alone, _ = run(tmp_path, ways, attached=False)
    attached, ran = run(tmp_path, ways, attached=True)

    assert len(attached) == 3
    assert attached == alone
    steps = ran.steps
    assert len(steps) == 40 * len(ways)
    assert all(step.backward > 0 and step.optimizer > 0 for step in steps[1:])


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs gdb on other processors")
@pytest.mark.parametrize("how", ["optimizer", "step"])
def test_attaching_to_a_compiled_step_is_refused(tmp_path, how):
    """It is valid as long as optimizers have no hooks, and would not call any."""
    alone, _ = run(tmp_path, [how], attached=False)
    attached, ran = run(tmp_path, [how], attached=True, refused=True)

    assert attached == alone
    assert not ran.folder.exists()
