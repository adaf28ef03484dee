"""What a recording keeps alive on a GPU does not grow with the number of steps."""

import json

import pytest

LOOP = """
import ctypes, json, sys, torch
steps, optimizes = int(sys.argv[1]), sys.argv[2] == "optimizer"
machine = ctypes.CDLL("libcuda.so.1")
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
x = torch.zeros(8, 8, device="cuda")
alive = []
for step in range(1, steps + 1):
    with torch.set_grad_enabled(optimizes):
        loss = model(x).sum()
    if optimizes:
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if step % (steps // 20) == 0:
        torch.cuda.synchronize()
        alive.append({kind: machine.fakecuda_live(kind.encode(), 0) for kind in ("events", "streams", "contexts")})
print(json.dumps(alive))
"""
STEPS = 4_000


@pytest.mark.parametrize("way", ["optimizer", "forward only"])
def test_events_streams_and_contexts_do_not_accumulate(fake_gpu, script, way):
    recorded = fake_gpu(speed=100.0).record(script(LOOP), STEPS, way)
    assert recorded.status == 0, recorded.err.decode()
    assert recorded.problems == {}
    early, late = (json.loads(recorded.out)[number] for number in (3, -1))
    assert late["streams"] == early["streams"]
    assert late["contexts"] == early["contexts"] == 1
    assert late["events"] <= max(early["events"], 200)
    assert recorded.counts["event_record"] > 100  # there were events to keep
