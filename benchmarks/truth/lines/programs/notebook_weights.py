# %% [markdown]
# A notebook that keeps the mean size of all weights after each step.
# %%
import torch
from clock import FIXED, running
from torch import nn

model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.Adam(model.parameters())
X, Y = torch.randn(3000, 64), torch.randint(0, 10, (3000,))


# %%
def sizes():
    if FIXED:
        return {name: weight.detach().abs().mean() for name, weight in model.named_parameters()}
    found = {}
    for name, weight in model.named_parameters():
        found[name] = sum(abs(value) for value in weight.detach().flatten().numpy()) / weight.numel()  # planted
    return found


# %%
history = []
while running():
    index = torch.randint(0, len(X), (256,))
    loss = nn.functional.cross_entropy(model(X[index]), Y[index])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history = [*history[-99:], sizes()]
