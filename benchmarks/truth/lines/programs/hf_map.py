"""A map-style dataset of texts that tokenizes at each access."""

import random

import torch
from clock import FIXED, running
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORDS = ["alpha", "beta", "gamma", "running", "jumped", "unbelievable"]
PIECES = {piece: i for i, piece in enumerate(["al", "pha", "be", "ta", "gam", "ma", "run", "ning", "jump", "ed", "un"])}


class Tokenizer:
    def __call__(self, text):
        found = []
        for word in text.split():
            while word:
                end = len(word)
                while end > 1 and word[:end] not in PIECES:  # planted
                    end -= 1  # planted
                found.append(PIECES.get(word[:end], 11))  # planted
                word = word[end:]
        return found[:128] + [11] * (128 - len(found))


class Texts(Dataset):
    def __init__(self):
        self.texts = [" ".join(random.choice(WORDS) for _ in range(100)) for _ in range(1000)]
        self.tokenizer = Tokenizer()
        self.tokens = [self.tokenizer(text) for text in self.texts] if FIXED else None

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        tokens = self.tokens[index] if FIXED else self.tokenizer(self.texts[index])
        return {"input_ids": torch.tensor(tokens), "labels": index % 2}


model = nn.Sequential(nn.Embedding(12, 32), nn.Flatten(), nn.Linear(32 * 128, 2))
optimizer = torch.optim.AdamW(model.parameters())
loader = DataLoader(Texts(), batch_size=32, shuffle=True)
while running():
    for batch in loader:
        loss = nn.functional.cross_entropy(model(batch["input_ids"]), batch["labels"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not running():
            break
