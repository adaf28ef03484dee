"""What the agent does to a program on a GPU, and what it sees there."""

from statistics import median

WHOLE_STEP = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
x, y = torch.randn(4096, 64, device="cuda"), torch.zeros(4096, dtype=torch.long, device="cuda")

def step():
    optimizer.zero_grad(set_to_none=True)
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss

side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(15):
        step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    loss = step()
for _ in range(100):
    graph.replay()
torch.cuda.synchronize()
with torch.no_grad():
    for _ in range(2000):
        model(x)
print("done", loss.item())
"""


def test_whole_step_graph_capture_works_and_each_replay_is_a_step(fake_gpu, script):
    """Two thousand passes without an optimizer afterwards leave no events behind, either."""
    gpu, train = fake_gpu(), script(WHOLE_STEP)
    plain, recorded = gpu.run(train), gpu.record(train)
    assert (plain.status, recorded.status) == (0, 0), recorded.err.decode()
    assert plain.out == recorded.out
    assert plain.counts["launch"] == recorded.counts["launch"]
    assert len(recorded.steps) == 15 + 100
    assert all(step.optimizer is None and step.forward is None for step in recorded.steps[-50:])
    assert recorded.live("events")[0] - plain.live("events")[0] < 200
    assert recorded.problems == {}


IN_TURNS = """
import torch
models = []
for device, width in ((1, 4096), (2, 4096)):
    model = torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.GELU(), torch.nn.Linear(width, 10))
    model.to(f"cuda:{device}")
    x, y = torch.randn(8192, 64, device=f"cuda:{device}"), torch.zeros(8192, dtype=torch.long, device=f"cuda:{device}")
    # Not AdamW: torch 2.13's asks whether GPU 0 captures a graph, which makes a context there.
    models.append((model, torch.optim.SGD(model.parameters(), 0.1), x, y))
for _ in range(40):
    for model, optimizer, x, y in models:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    loss.item()  # otherwise the host may end within the first pause of the marks
"""


def test_models_are_timed_on_their_own_gpus_without_touching_others(fake_gpu, script):
    gpu = fake_gpu("H100:80,H100:80,H100:80", speed=0.02)  # slow enough for the host of a busy machine to stay ahead
    train = script(IN_TURNS)
    plain, recorded = gpu.run(train), gpu.record(train)
    assert recorded.status == 0, recorded.err.decode()
    assert plain.live("contexts")[0] == 0
    assert recorded.live("contexts") == plain.live("contexts")
    assert recorded.problems == {}
    assert {fact.id for fact in recorded.facts("memory")} == {1, 2}
    assert all(fact.free and fact.total and fact.parameters for fact in recorded.facts("memory"))
    measured = [step for step in recorded.steps if step.tags == 0 and step.forward]
    assert measured
    assert all(step.backward for step in measured)
    assert median(step.backward for step in measured) > median(step.forward for step in measured)
