"""torch.compile: the program compiles exactly what it compiles without us."""

import pytest
from programs import ROOT

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

if __name__ == "__main__":
    how = sys.argv[1]
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def update(inputs):
        loss = call(inputs).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    call, sizes = model, [16]
    if how == "inductor": call = torch.compile(model)
    if how == "module": model.compile(backend="aot_eager")
    if how == "blocks":
        for block in model.blocks: block.compile(backend="aot_eager")
    if how == "dynamic": call, sizes = torch.compile(model, backend="aot_eager", dynamic=True), [16, 12, 8]
    if how == "automatic": call, sizes = torch.compile(model, backend="aot_eager"), [16, 12, 8]
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
    if how == "region":
        from profiler import region
        plain = update
        def update(inputs):
            with region("update"): return plain(inputs)
        call = torch.compile(model, backend="aot_eager")

    losses = []
    for epoch in range(3):
        for size in sizes:
            loader = DataLoader(list(torch.randn(16, size, 32)), batch_size=None)  # nothing to put together
            losses += [update(inputs).item() for inputs in loader]
        if epoch == 1:
            time.sleep(0.6)  # the agent looks after its wrappers twice a second
            model.eval()
            with torch.no_grad(): losses.append(call(torch.randn(16, 32)).square().mean().item())
            model.train()
    tell(losses)
    counters = torch._dynamo.utils.counters
    for name in ("stats", "graph_break", "recompiles", "unimplemented"):
        tell(name, {key[:80]: value for key, value in sorted(counters[name].items())})
    metrics = torch._dynamo.utils.get_compilation_metrics()
    # A guard that fails makes one more, whichever counter it goes to.
    tell(len(metrics))
"""


EPOCHS = 3


@pytest.mark.parametrize("how", ["inductor", "module", "blocks", "dynamic", "automatic", "broken", "region"])
def test_a_compiled_program_compiles_as_without_us(judge, how):
    """Losses, graphs, graph breaks and compilations are printed by the program, and equal."""
    found = judge(COMPILED, how, env={"PYTHONPATH": str(ROOT)})
    steps = found.of(0)

    assert found.flags()["compile"]
    assert len(steps) == EPOCHS * 16 * (3 if how in ("dynamic", "automatic") else 1)
    assert all(step.backward > 0 and step.optimizer > 0 for step in steps)
    assert steps[0].tags & TAG_COMPILE
    if how != "broken":  # there a function is compiled, not a module
        assert all(step.forward > 0 for step in steps if not step.tags)
    if how == "region":
        (region,) = found.ran.facts("region")
        assert (region.name, region.count) == ("update", len(steps))


@pytest.mark.parametrize("how", ["optimizer", "step"])
def test_steps_that_are_compiled_whole_are_not_seen_and_that_is_told(judge, how):
    """torch calls no hooks of an optimizer in a graph. The program compiles as without us, here too."""
    found = judge(COMPILED, how, env={"PYTHONPATH": str(ROOT)}, seen=False)

    assert not found.ran.steps
    assert "profiler.step()" in found.ran.problems["steps"][0]
    assert found.result["steps"]["count"] == 0
    assert not found.result["advice"]
