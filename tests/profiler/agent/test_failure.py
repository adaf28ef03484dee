"""Facts about a program that fails before its first step."""

import pytest
from programs import TORCH

PROGRAM = (
    TORCH
    + """
import torch

class Block(torch.nn.Sequential):
    pass

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(torch.nn.Linear(8, 8), torch.nn.ReLU()) for _ in range(4)])
    def forward(self, features):
        for block in self.blocks:
            features = block(features)
        FAILS
        return features

model = Net()
optimizer = torch.optim.AdamW(model.parameters())
model(torch.randn(2, 8)).sum().backward()
"""
)
LINE = PROGRAM.splitlines().index("optimizer = torch.optim.AdamW(model.parameters())") + 1


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        ("torch.OutOfMemoryError('no room')", ("torch.OutOfMemoryError", "no room")),
        (
            'RuntimeError("DefaultCPUAllocator: can\'t allocate memory")',
            ("RuntimeError", "DefaultCPUAllocator: can't allocate memory"),
        ),
    ],
)
def test_out_of_memory_in_first_pass_still_reports_model_and_optimizer(tried, error, reported):
    ran = tried(PROGRAM.replace("FAILS", f"raise {error}")).ran

    (model,) = ran.facts("model")
    assert (model.name, model.block, model.blocks, model.parameters) == ("Net", "Block", 4, 4 * 72)
    (optimizer,) = ran.facts("optimizer")
    assert (optimizer.name, optimizer.parameters, optimizer.place.line) == ("AdamW", 4 * 72, LINE)
    (failure,) = ran.facts("error")
    assert (failure.type, failure.message) == reported
    assert not ran.problems["trial"]


def test_other_failure_before_training_reports_nothing(tried):
    ran = tried(PROGRAM.replace("FAILS", "raise ValueError('secret')")).ran

    assert not ran.facts("model")
    assert not ran.facts("error")
