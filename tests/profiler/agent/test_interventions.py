"""Each change that a trial can make, on a real loop: it is in force, and the rest of the program is as before."""

import json
from pathlib import Path

import pytest
from programs import PATIENCE, Ran

from profiler.trial import Trial, run

LOOP = """
import json, os, torch
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
                compiled=hasattr(torch, "_dynamo") and torch._dynamo.utils.counters["stats"]["unique_graphs"],
            )
            if step == 20: print("seen:", json.dumps(seen), flush=True)
"""
LINE = 1 + next(number for number, line in enumerate(LOOP.splitlines()) if "    loader = " in line)


@pytest.fixture
def seen_with(script, tmp_path):
    """What the program saw of itself in its twentieth step, with these changes; and its losses."""
    count = 0

    def begin(*changes, before=""):
        nonlocal count
        count += 1
        path = script(LOOP.replace("BEFORE", before), "project/train.py")
        for _, settings in changes:
            if "file" in settings:
                settings["file"] = str(path)
        out = tmp_path / f"trial-{count}"
        made = tuple({"name": name, "settings": settings} for name, settings in changes)
        trial = Trial(words=(str(path),), cwd=str(path.parent), out=str(out), steps=30, changes=made)
        assert run(trial, PATIENCE) == out
        ran = Ran(0, Path(f"{out}.log").read_bytes(), b"", out)
        assert not ran.problems["trial"]
        line = next(line for line in ran.out.decode().splitlines() if line.startswith("seen:"))
        losses = [fact.losses for fact in ran.facts("trial") if fact.losses]
        return json.loads(line.removeprefix("seen:")), losses[0][:25]

    return begin


def test_without_a_change_nothing_changes(seen_with):
    seen, _ = seen_with()

    assert seen == {
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


def test_a_loader_gets_workers_and_the_others_none(seen_with):
    plain, losses = seen_with()
    settings = {"file": "", "line": LINE, "num_workers": 2, "persistent_workers": True, "prefetch_factor": 4}
    seen, with_workers = seen_with(("loader", settings))

    assert seen == {**plain, "workers": True}
    assert with_workers == losses


def test_a_loader_loses_its_workers(seen_with):
    """And all that DataLoader refuses without them."""
    arguments = "timeout=60, prefetch_factor=2, persistent_workers=True, multiprocessing_context='fork'"
    before = f"import functools; DataLoader = functools.partial(DataLoader, num_workers=1, {arguments})"
    seen, _ = seen_with(("loader", {"file": "", "line": LINE, "num_workers": 0}), before=before)

    assert (seen["workers"], seen["other"]) == (False, 1)


def test_autocast_computes_in_16_bits_and_returns_32(seen_with):
    plain, losses = seen_with()
    seen, cast = seen_with(("autocast", {"dtype": "bfloat16"}))

    assert seen == {**plain, "conv": "torch.bfloat16"}
    assert cast != losses
    assert cast == pytest.approx(losses, rel=0.05)


def test_an_optimizer_is_fused(seen_with):
    plain, losses = seen_with()
    seen, fused = seen_with(("fused_optimizer", {"name": "Adam"}))

    assert seen == {**plain, "fused": True, "scales": True}
    assert fused == pytest.approx(losses, rel=1e-4)


def test_flags_are_set_after_the_program_has_set_its_own(seen_with):
    seen, _ = seen_with(("flags", {"threads": 2, "matmul_precision": "high"}))

    assert (seen["threads"], seen["precision"]) == (2, "high")


def test_anomaly_detection_stays_off_whoever_asks_for_it(seen_with):
    before = "torch.autograd.set_detect_anomaly(True)"

    assert seen_with(before=before)[0]["anomaly"]
    assert not seen_with(("flags", {"anomaly": False}), before=before)[0]["anomaly"]


def test_images_come_channels_last(seen_with):
    plain, losses = seen_with()
    seen, turned = seen_with(("channels_last", {}))

    assert seen == {**plain, "channels_last": True, "state_turned": True}
    assert turned == pytest.approx(losses, rel=1e-3)


@pytest.mark.slow
def test_a_model_is_compiled(seen_with):
    _, losses = seen_with()
    seen, compiled = seen_with(("compile", {}))

    assert seen["compiled"]
    assert compiled == pytest.approx(losses, rel=1e-3)
