"""A collate function that tokenizes, letter by letter."""

import random

import torch
from clock import FIXED, running
from torch import nn
from torch.utils.data import DataLoader

texts = ["".join(random.choice("abcdefgh ") for _ in range(400)) for _ in range(1000)]
vocabulary = {letter: i for i, letter in enumerate("abcdefgh ")}


def encode(text):
    tokens = []
    for letter in text:
        tokens.append(vocabulary.get(letter.lower().strip() or " ", 0))  # planted
    return tokens


def collate(texts):
    # As slow as encode(): torch.tensor() visits each element of the lists.
    tokens = torch.stack(texts) if FIXED else torch.tensor([encode(text) for text in texts])  # planted
    return tokens[:, :-1], tokens[:, 1:]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(9, 32), nn.Linear(32, 9)

    def forward(self, tokens):
        return self.head(torch.tanh(self.embed(tokens)))


dataset = [torch.tensor(encode(text)) for text in texts] if FIXED else texts
loader = DataLoader(dataset, batch_size=32, shuffle=True, collate_fn=collate)
model = Model()
optimizer = torch.optim.Adam(model.parameters())
while running():
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not running():
            break
