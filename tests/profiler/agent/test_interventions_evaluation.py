"""Evaluation keeps no activations, and a model that is trained in eval mode is not silently left untrained."""

from programs import TORCH

LOOP = (
    TORCH
    + """
import copy, json, torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(8, 8)
    def forward(self, features):
        hidden = self.lin(features)
        seen.append(hidden.requires_grad)
        return {"out": [hidden.relu()], "mask": features > 0}

torch.set_num_threads(1)
seen = []
model = Net()
judge = Net().eval()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(100):
    EACH_STEP
    inputs = torch.randn(4, 8)
    output = model(inputs)["out"][0]
    loss = (LOSS).square().mean() + 0.1
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 10 == 9:
        seen.clear()
        model.eval()
        result = model(inputs)
        out = result["out"][0]
        out.mul_(2)
        copy.deepcopy(model)(inputs)
        values = [seen, type(result).__name__, out.requires_grad, result["mask"].dtype == torch.bool]
        model.train()
        if step == 19: print("seen:", json.dumps(values), flush=True)
"""
)
CHANGE = ("evaluation", {})


def loop(loss="output", each_step=""):
    return LOOP.replace("LOSS", loss).replace("EACH_STEP", each_step)


def test_eval_mode_runs_without_gradients_and_training_with_them(tried):
    plain = tried(loop())
    changed = tried(loop(), CHANGE)

    assert plain.seen == [[[True, True], "dict", True, True]]
    assert changed.seen == [[[False, False], "dict", True, True]]
    assert changed.losses == plain.losses
    assert len(set(changed.losses[0])) > 25
    assert not changed.failed


def test_eval_mode_model_in_the_loss_passes_gradients_through(tried):
    text = loop(loss="judge(output)['out'][0] - 1")
    plain = tried(text)
    changed = tried(text, CHANGE)

    assert changed.seen == [[[False, False], "dict", True, True]]
    assert changed.losses == plain.losses
    assert not changed.failed


def test_model_trained_in_eval_mode_is_reported(tried):
    changed = tried(loop(each_step="model.eval()"), CHANGE)

    assert "unsuitable" in changed.codes
