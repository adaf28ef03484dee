"""Programs end and print the same with and without the profiler, and it leaves nothing behind on a GPU."""

MODELS = """
import torch
from torch import nn
from torch.nn.functional import cross_entropy
torch.manual_seed(0)
first, second = torch.device("cuda:1"), torch.device("cuda:2")

def model(*devices):
    parts = [nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 10)]
    return nn.Sequential(*[part.to(device) for part, device in zip(parts, devices * 3)])

def batch(device):
    return torch.randn(32, 64, device=device), torch.zeros(32, dtype=torch.long, device=device)
"""

SCALED = """
trained = model(first)
optimizer, scaler = torch.optim.AdamW(trained.parameters()), torch.amp.GradScaler("cuda")
x, y = batch(first)
for _ in range(12):
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.float16):
        loss = cross_entropy(trained(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(trained.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
print("scaled", scaler.get_scale(), loss.item())
"""

CAUGHT = """
failures = 0
for step in range(12):
    optimizer.zero_grad()
    try:
        rows = 64_000_000 if step % 4 == 3 else 32
        trained(torch.empty(rows, 64, device=first)).sum().backward()
    except torch.OutOfMemoryError:
        failures += 1
        torch.cuda.empty_cache()
        continue
    optimizer.step()
print("caught", failures, torch.cuda.memory_allocated(first))
"""

IN_TURNS = """
pairs = [(one, torch.optim.SGD(one.parameters(), 0.1), *batch(device)) for one, device in
         ((model(first), first), (model(second), second))]
for _ in range(12):
    for one, its, x, y in pairs:
        its.zero_grad()
        loss = cross_entropy(one(x), y)
        loss.backward()
        its.step()
print("in turns", loss.item())
"""

SPLIT = """
class Split(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(64, 256).to(first), nn.Linear(256, 10).to(second)
    def forward(self, x):
        return self.head(torch.relu(self.body(x)).to(second))
split = Split()
its, (x, _), (_, y) = torch.optim.SGD(split.parameters(), 0.1), batch(first), batch(second)
for _ in range(12):
    its.zero_grad()
    loss = cross_entropy(split(x), y)
    loss.backward()
    its.step()
print("split", loss.item())
"""

CAPTURED = """
with torch.cuda.device(first):
    whole = model(first)
    its, (x, y) = torch.optim.AdamW(whole.parameters(), capturable=True), batch(first)
    def step():
        its.zero_grad(set_to_none=True)
        loss = cross_entropy(whole(x), y)
        loss.backward()
        its.step()
        return loss
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    for _ in range(12):
        graph.replay()
    torch.cuda.synchronize()
    print("captured", loss.item())
"""
SEEN = {"launch", "gemm", "malloc", "free", "memcpy_async", "memcpy_sync", "memset", "stream_sync", "device_sync"}
"""Calls that the profiler never makes."""


def test_ways_of_training_run_unchanged_in_one_process(fake_gpu, script):
    """Mixed precision, a caught out-of-memory error, two GPUs in turns, a captured step, a model on both.

    The first GPU is never used: it gets no context from us, whether torch makes one there (2.14) or not (2.8).
    """
    gpu, train = fake_gpu("A100:8,A100:8,A100:8"), script(MODELS + SCALED + CAUGHT + IN_TURNS + CAPTURED + SPLIT)
    plain, recorded = gpu.run(train), gpu.record(train)
    assert plain.status == 0, plain.err.decode()
    assert (recorded.status, recorded.out) == (0, plain.out), recorded.err.decode()
    assert [line.split()[0] for line in plain.out.decode().splitlines()] == [
        "scaled", "caught", "in", "captured", "split"
    ]  # fmt: skip
    for kind in ("contexts", "streams", "pinned"):
        assert recorded.live(kind) == plain.live(kind), kind
    assert {kind: recorded.counts[kind] for kind in SEEN} == {kind: plain.counts[kind] for kind in SEEN}
    assert set(recorded.problems) == {"cuda_events"}  # no single GPU sees the phases of the model on both


TOO_LARGE = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
model = nn.Sequential(*[nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(12)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step, (rows,) in enumerate(DataLoader(TensorDataset(torch.arange(4096)), batch_size=64)):
    length = 4096 if step == 40 else 512
    loss = model(torch.empty(len(rows), length, 256, device="cuda")).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("never printed")
"""


def test_out_of_memory_ends_program_unchanged_and_report_advises_remedy(fake_gpu, script):
    gpu, train = fake_gpu("A100:8"), script(TOO_LARGE)
    plain, recorded = gpu.run(train), gpu.record(train, options=("--no-windows",))
    assert (plain.status, plain.out) == (1, b"")
    assert (recorded.status, recorded.out) == (1, b"")
    assert plain.err.splitlines()[-1] in recorded.err
    assert (recorded.run.outcome, recorded.run.exit_status) == ("failed", 1)
    metrics = recorded.result["metrics"]
    assert metrics["oom_count"]["value"] == 1
    assert 0 <= metrics["mem_headroom"]["value"] < 0.2
    above = [advice["rule"] for advice in recorded.result["advice"] if advice["severity"] != "info"]
    assert above == ["grad-accum"]


COMPILED = """
import time
import torch
import torch._dynamo
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 1)
    def forward(self, x): return self.down(torch.relu(self.up(x)))
for turn in range(2):  # the agent hooks the class of the first model; the second is of it, too
    torch._dynamo.reset()
    model = Net().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    call = torch.compile(model, backend="eager", fullgraph=True)
    for epoch in range(2):
        for _ in range(16):
            call(torch.randn(16, 32, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    time.sleep(0.6)  # the agent looks after its wrappers twice a second
    model.eval()
    with torch.no_grad(): call(torch.randn(16, 32, device="cuda"))
print(len(torch._dynamo.utils.get_compilation_metrics()))
"""


def test_agent_code_is_not_compiled(fake_gpu, script):
    """Hooks call the code that marks the ends of phases on a GPU."""
    gpu, train = fake_gpu("A100:8"), script(COMPILED)
    plain, recorded = gpu.run(train), gpu.record(train, options=("--no-windows",))
    assert plain.status == 0, plain.err.decode()
    assert (recorded.status, recorded.out) == (0, plain.out), recorded.err.decode()
