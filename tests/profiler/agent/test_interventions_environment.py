"""Variables are set or removed before the program starts; a program that sets one itself is reported."""

import pytest
from programs import TORCH

LOOP = (
    TORCH
    + """
import json, os
# EARLY
import torch
# LATE
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100):
    model(torch.ones(2, 4)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 20:
        names = ("OMP_NUM_THREADS", "CUDA_LAUNCH_BLOCKING", "WANDB_MODE", "PYTORCH_ALLOC_CONF")
        print("seen:", json.dumps([torch.get_num_threads(), *map(os.environ.get, names)]), flush=True)
"""
)
VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "CUDA_LAUNCH_BLOCKING": None,
    "PYTORCH_ALLOC_CONF": "expandable_segments:True",
}


def loop(early="", late=""):
    return LOOP.replace("# EARLY", early).replace("# LATE", late)


@pytest.fixture(autouse=True)
def _as_a_user_has_it(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)


def test_variables_are_set_and_removed_before_the_program_starts(tried):
    plain = tried(loop())
    changed = tried(loop(), ("environment", {"variables": VARIABLES}))

    assert plain.seen == [[2, "2", "1", "offline", None]]
    assert changed.seen == [[1, "1", None, "offline", "expandable_segments:True"]]
    assert not changed.failed


def test_change_cannot_turn_trackers_on(tried):
    changed = tried(loop(), ("environment", {"variables": {"WANDB_MODE": "online"}}))

    assert changed.seen[0][3] == "offline"
    assert "WANDB_MODE" in changed.failed[0]


def test_changes_add_up(tried):
    first, second = {"OMP_NUM_THREADS": "1"}, {"CUDA_LAUNCH_BLOCKING": None}
    changed = tried(loop(), ("environment", {"variables": first}), ("environment", {"variables": second}))

    assert changed.seen == [[1, "1", None, "offline", None]]
    assert not changed.failed


@pytest.mark.parametrize("when", ["early", "late"])
def test_program_that_sets_a_variable_itself_is_reported(tried, when):
    text = loop(**{when: "os.environ['CUDA_LAUNCH_BLOCKING'] = '1'"})
    changed = tried(text, ("environment", {"variables": VARIABLES}))

    assert changed.codes == {"program-does"}
