"""Each change that a trial can make, in a real loop: it takes effect, and the rest of the program stays the same."""

import json
from pathlib import Path

import pytest
from programs import PATIENCE, TORCH, Ran

from profiler.trial import TrialProcess, run

LOOP = (
    TORCH
    + """
import json, os, sys, torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self): return 400
    def __getitem__(self, index): return torch.full((3, 8, 8), index / 400), os.getpid()

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.head = torch.nn.Linear(4, 1)
    def forward(self, images):
        features = self.conv(images)
        seen["conv"] = str(features.dtype)
        seen["channels_last"] = images.is_contiguous(memory_format=torch.channels_last)
        return self.head(features.mean((2, 3)))

if __name__ == "__main__":
    seen = {}
    torch.set_num_threads(1)
    BEFORE
    loader = DataLoader(Numbers(), batch_size=4)
    other = DataLoader(Numbers(), batch_size=4)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(100):
        for step, (images, pids) in enumerate(loader):
            output = model(images)
            loss = output.square().mean() + 0.1
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            seen.update(
                output=str(output.dtype), workers=os.getpid() not in pids.tolist(), other=other.num_workers,
                fused=optimizer.param_groups[0]["fused"], threads=torch.get_num_threads(),
                scales=getattr(optimizer, "_step_supports_amp_scaling", False),
                state_turned=optimizer.state[model.conv.weight]["exp_avg"].is_contiguous(
                    memory_format=torch.channels_last
                ),
                anomaly=torch.is_anomaly_enabled(), precision=torch.get_float32_matmul_precision(),
                compiled="torch._dynamo.utils" in sys.modules
                and torch._dynamo.utils.counters["stats"]["unique_graphs"],
            )
            if step == 20: print("seen:", json.dumps(seen), flush=True)
"""
)
ANOMALY = "torch.autograd.set_detect_anomaly(True)"
LINE = 1 + next(number for number, line in enumerate(LOOP.splitlines()) if "    loader = " in line)


def observe(folder, *changes, before=""):
    """Return what the program observed in step 20 with these changes, and its losses."""
    path = folder / "project/train.py"
    path.parent.mkdir(parents=True)
    path.write_text(LOOP.replace("BEFORE", before))
    made = []
    for name, settings in changes:
        made.append({"name": name, "settings": settings | ({"file": str(path)} if "file" in settings else {})})
    out = folder / "trial"
    trial = TrialProcess(words=(str(path),), cwd=str(path.parent), out=str(out), steps=30, changes=tuple(made))
    assert run(trial, PATIENCE) == out
    ran = Ran(0, Path(f"{out}.log").read_bytes(), b"", out)
    assert not ran.problems["trial"]
    line = next(line for line in ran.out.decode().splitlines() if line.startswith("seen:"))
    losses = [fact.losses for fact in ran.facts("trial") if fact.losses]
    return json.loads(line.removeprefix("seen:")), losses[0][:25]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Return the same for the unchanged program."""
    return observe(tmp_path_factory.mktemp("plain"))


@pytest.mark.process
def test_without_a_change_nothing_changes(plain):
    assert plain[0] == {
        "conv": "torch.float32",
        "channels_last": False,
        "output": "torch.float32",
        "workers": False,
        "other": 0,
        "fused": None,
        "scales": False,
        "state_turned": False,
        "threads": 1,
        "anomaly": False,
        "precision": "highest",
        "compiled": 0,
    }


@pytest.mark.process
def test_only_the_chosen_loader_gets_workers(plain, tmp_path):
    settings = {"file": "", "line": LINE, "num_workers": 2, "persistent_workers": True, "prefetch_factor": 4}
    seen, losses = observe(tmp_path, ("loader", settings))

    assert seen == {**plain[0], "workers": True}
    assert losses == plain[1]


@pytest.mark.process
def test_a_loader_loses_its_workers(tmp_path):
    """Options that DataLoader refuses without workers go too. Anomaly detection stays on where the program enables
    it."""
    arguments = "timeout=60, prefetch_factor=2, persistent_workers=True, multiprocessing_context='fork'"
    before = f"import functools; DataLoader = functools.partial(DataLoader, num_workers=1, {arguments}); {ANOMALY}"
    seen, _ = observe(tmp_path, ("loader", {"file": "", "line": LINE, "num_workers": 0}), before=before)

    assert (seen["workers"], seen["other"]) == (False, 1)
    assert seen["anomaly"]


@pytest.mark.process
def test_autocast_computes_in_16_bits_and_returns_32(plain, tmp_path):
    seen, losses = observe(tmp_path, ("autocast", {"dtype": "bfloat16"}))

    assert seen == {**plain[0], "conv": "torch.bfloat16"}
    assert losses != plain[1]
    assert losses == pytest.approx(plain[1], rel=0.05)


@pytest.mark.process
def test_an_optimizer_is_fused(plain, tmp_path):
    seen, losses = observe(tmp_path, ("fused_optimizer", {"name": "Adam"}))

    assert seen == {**plain[0], "fused": True, "scales": True}
    assert losses == pytest.approx(plain[1], rel=1e-4)


@pytest.mark.process
def test_flags_override_those_of_the_program(tmp_path):
    """Anomaly detection stays off, although the program enables it."""
    settings = {"threads": 2, "matmul_precision": "high", "anomaly": False}
    seen, _ = observe(tmp_path, ("flags", settings), before=ANOMALY)

    assert (seen["threads"], seen["precision"], seen["anomaly"]) == (2, "high", False)


@pytest.mark.process
def test_images_become_channels_last(plain, tmp_path):
    seen, losses = observe(tmp_path, ("channels_last", {}))

    assert seen == {**plain[0], "channels_last": True, "state_turned": True}
    assert losses == pytest.approx(plain[1], rel=1e-3)


@pytest.mark.slow
def test_a_model_is_compiled(plain, tmp_path):
    seen, losses = observe(tmp_path, ("compile", {}))

    assert seen["compiled"]
    assert losses == pytest.approx(plain[1], rel=1e-3)
