"""A language model that is evaluated by beam search after every fourth step, one hypothesis at a time."""

import torch
import torch.nn.functional as F
from clock import FIXED, running
from torch import nn


class Letters(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.gru, self.head = nn.Embedding(60, 64), nn.GRU(64, 128, batch_first=True), nn.Linear(128, 60)

    def forward(self, x):
        return self.head(self.gru(self.embed(x))[0])


def search(model, tokens, width=4, length=12):
    beams = [(0.0, tokens)]
    for _ in range(length):
        grown = []
        for score, tokens in beams:
            top = F.log_softmax(model(torch.tensor([tokens]))[0, -1], -1).topk(width)  # planted
            grown += [(score + top.values[k].item(), [*tokens, top.indices[k].item()]) for k in range(width)]
        beams = sorted(grown, reverse=True)[:width]
    return beams[0][1]


@torch.no_grad()
def evaluate(model):
    model.eval()
    found = [search(model, [k, k + 1]) for k in range(0, 12, 2)]  # planted
    model.train()
    return sum(len(set(tokens)) for tokens in found)


corpus = torch.randint(0, 60, (20000,))
model = Letters()
optimizer = torch.optim.Adam(model.parameters())
step = 0
while running():
    batch = corpus[torch.randint(0, 19000, (16, 1)) + torch.arange(41)]
    loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if step % (20 if FIXED else 4) == 0:  # as often as the advice says
        print(step, evaluate(model))  # planted
