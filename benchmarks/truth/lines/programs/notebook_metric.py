# %% [markdown]
# A notebook that reads the accuracy on all of its data after each step.
# %%
import torch
from clock import FIXED, running
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

X, Y = torch.randn(6000, 64), torch.randint(0, 10, (6000,))
loader = DataLoader(TensorDataset(X, Y), batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.Adam(model.parameters())


# %%
def accuracy():
    right = 0
    with torch.no_grad():
        for at in range(0, len(X), 50):
            right += (model(X[at : at + 50]).argmax(1) == Y[at : at + 50]).sum().item()  # planted
    return right / len(X)


# %%
history, step = [], 0
while running():
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % (100 if FIXED else 1) == 0:
            history.append((loss.item(), accuracy()))  # planted
        if not running():
            break
