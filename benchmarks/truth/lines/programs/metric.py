"""An AUC computed in Python at each step."""

import torch
from clock import FIXED, running
from torch import nn

X, Y = torch.randn(3000, 64), torch.randint(0, 2, (3000,))
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 2))
optimizer = torch.optim.Adam(model.parameters())


def auc(scores, labels):
    pairs = sorted(zip(scores.tolist(), labels.tolist(), strict=True))  # planted
    ranks = [rank for rank, (_, label) in enumerate(pairs, 1) if label == 1]  # planted
    positives = len(ranks)
    return (sum(ranks) - positives * (positives + 1) / 2) / (positives * (len(pairs) - positives) or 1)


seen, wanted, step = torch.zeros(0), torch.zeros(0), 0
while running():
    index = torch.randint(0, len(X), (256,))
    logits = model(X[index])
    loss = nn.functional.cross_entropy(logits, Y[index])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    seen, wanted = torch.cat([seen, logits[:, 1].detach()])[-8000:], torch.cat([wanted, Y[index]])[-8000:]
    step += 1
    if step % (50 if FIXED else 1) == 0:
        auc(seen, wanted)  # planted
