"""Blocks are recomputed in the backward pass, with the same numbers."""

from programs import TORCH

LOOP = (
    TORCH
    + """
import copy, json, torch
from collections import Counter

class Block(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.name = name
        self.lin = torch.nn.Linear(8, 8)
    def forward(self, features, *, scale):
        calls[self.name] += 1
        return features + scale * torch.nn.functional.dropout(self.lin(features).relu(), 0.5, self.training)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(name) for name in "abcd"])
        self.head = torch.nn.Linear(8, 1)
    def forward(self, features):
        for block in self.blocks:
            features = block(features, scale=0.5)
        return self.head(features)

calls = Counter()
torch.set_num_threads(1)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100):
    calls.clear()
    loss = model(torch.randn(4, 8)).square().mean() + 0.1
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 20:
        in_training = dict(calls)
        calls.clear()
        other = copy.deepcopy(model)
        with torch.no_grad():
            other.head.weight.zero_()
            other.head.bias.fill_(7.0)
            result = other(torch.ones(1, 8)).item()
        print("seen:", json.dumps([in_training, dict(calls), result]), flush=True)
"""
)


def test_chosen_blocks_are_recomputed_with_bitwise_equal_losses(tried):
    plain = tried(LOOP)
    changed = tried(LOOP, ("checkpointing", {"block": "Block", "every": 2}))

    once = dict.fromkeys("abcd", 1)
    assert plain.seen == [[once, once, 7.0]]
    # A copy of the model is a separate model, and nothing is recomputed without gradients.
    assert changed.seen == [[{**once, "a": 2, "c": 2}, once, 7.0]]
    assert changed.losses == plain.losses
    assert len(set(changed.losses[0])) > 25
    assert not changed.failed
