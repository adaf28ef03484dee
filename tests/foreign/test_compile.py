"""torch.compile: the program compiles exactly what it compiles without us."""

import pytest
from programs import ROOT, codes

from profiler.schema import TAG_COMPILE

pytestmark = pytest.mark.foreign

COMPILED = """
import torch._dynamo

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

def train(how):
    # As if nothing had been compiled before.
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def update(inputs):
        loss = call(inputs).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    def epoch(loader): return [update(inputs) for inputs in loader]

    call, sizes = model, [16]
    if how == "inductor": call = torch.compile(model)
    if how == "eager": call = torch.compile(model, backend="eager")
    if how == "fullgraph": call = torch.compile(model, backend="aot_eager", fullgraph=True)
    if how == "module": model.compile(backend="aot_eager")
    if how == "blocks":
        for block in model.blocks: block.compile(backend="aot_eager")
    if how == "dynamic": call, sizes = torch.compile(model, backend="aot_eager", dynamic=True), [16, 12, 8]
    if how == "automatic": call, sizes = torch.compile(model, backend="aot_eager"), [16, 12, 8]
    if how == "function":
        inner = torch.compile(lambda inputs: model(inputs) * 2, backend="eager", fullgraph=True)
        call = lambda inputs: inner(inputs)
    if how == "broken":
        def call(inputs):
            hidden = model.blocks[0](inputs)
            torch._dynamo.graph_break()
            return model.head(model.blocks[1](hidden))
        call = torch.compile(call, backend="aot_eager")
    if how == "optimizer":
        call = torch.compile(model, backend="aot_eager")
        step = torch.compile(optimizer.step, backend="aot_eager")
        optimizer.step = lambda: step()
    if how == "step": update = torch.compile(update, backend="aot_eager")
    if how == "epoch": epoch = torch.compile(epoch, backend="eager")
    if how == "region":
        from profiler import region
        plain = update
        def update(inputs):
            with region("update"): return plain(inputs)
        call = torch.compile(model, backend="aot_eager")

    losses = []
    for number in range(3):
        for size in sizes:
            loader = DataLoader(list(torch.randn(16, size, 32)), batch_size=None)  # nothing to put together
            losses += [loss.item() for loss in epoch(loader)]
        if number == 0 and how == "late": model.compile(backend="eager")
        if number == 1:
            time.sleep(0.6)  # the agent looks after its wrappers twice a second
            model.eval()
            with torch.no_grad(): losses.append(call(torch.randn(16, 32)).square().mean().item())
            model.train()
    tell(how, losses)
    counters = torch._dynamo.utils.counters
    # Of a loop over a loader it says of which call it gave up, and that one is ours.
    names = ("stats", "graph_break", "recompiles", *(["unimplemented"] if how != "epoch" else []))
    for name in names:
        tell(name, {key[:80]: value for key, value in sorted(counters[name].items())})
    # A guard that fails makes one more, whichever counter it goes to. torch keeps the last 64.
    metrics = torch._dynamo.utils.get_compilation_metrics()
    assert len(metrics) < 64
    tell(len(metrics))

if __name__ == "__main__":
    for how in sys.argv[1:]: train(how)
"""


# Otherwise Inductor compiles programs to find the CPU's vector instructions, which takes a third of its time.
ENVIRONMENT = {"PYTHONPATH": str(ROOT), "TORCHINDUCTOR_VEC_ISA_OK": "1"}
EPOCHS = 3
WAYS = (
    *("inductor dynamic", "automatic eager", "fullgraph module", "blocks region broken"),
    "late function epoch",  # in the last one, torch compiles the loop: its steps need not be seen
)
"""Ways to compile, by program, which tries them in turn; the agent soon stops looking for new models."""


@pytest.mark.parametrize("ways", WAYS)
def test_profiling_does_not_change_compilation(judge, ways):
    """The program prints losses, graphs, graph breaks, compilations and torch's log, and they are equal."""
    ways = ways.split()
    # Each way compiles evaluation once: with two ways, that may be most of the time, as the report then says.
    advised = {"eval-less-often"} if len(ways) > 1 else set()
    found = judge(COMPILED, *ways, env=ENVIRONMENT, stderr=True, light=True, advised=advised)
    every = iter(found.of(0))

    assert found.flags()["compile"]
    for how in ways:
        if how == "epoch":
            break
        steps = [next(every) for _ in range(EPOCHS * 16 * (3 if how in ("dynamic", "automatic") else 1))]
        assert all(step.backward > 0 and step.optimizer > 0 for step in steps), how
        compiled = [number for number, step in enumerate(steps) if step.tags & TAG_COMPILE]
        assert compiled[0] == (16 if how == "late" else 0), how
        forwards = [step.forward for step in steps if not step.tags]
        if how in ("function", "broken"):  # there a function is compiled, not a module
            assert how == "broken" or set(forwards) == {None}
        elif how == "late":  # its call is seen again once the agent has looked
            assert forwards[-1] > 0
        else:
            # A model made while a program trains is known once the agent has looked.
            assert all(forward > 0 for forward in (forwards if how == ways[0] else forwards[-16:])), how
        if how == "region":
            (region,) = found.ran.facts("region")
            assert (region.name, region.count) == ("update", len(steps))


def test_fully_compiled_steps_are_reported_as_unseen(judge):
    """In a graph, torch calls no optimizer hooks. Here, too, the program compiles as it does without us."""
    found = judge(COMPILED, "optimizer", "step", env=ENVIRONMENT, seen=False, stderr=True, light=True)

    assert not found.ran.steps
    assert codes(found.ran, "steps") == ["unseen"]
    assert found.result["steps"]["count"] == 0
    assert not found.result["advice"]
