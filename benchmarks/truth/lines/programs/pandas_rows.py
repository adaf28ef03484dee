"""A data frame whose rows are taken one by one."""

import numpy as np
import pandas as pd
import torch
from clock import FIXED, running
from torch import nn
from torch.utils.data import DataLoader, Dataset

frame = pd.DataFrame(np.random.rand(4000, 16).astype("float32"), columns=[f"c{i}" for i in range(16)])
frame["label"] = np.arange(4000) % 5


class Frame(Dataset):
    def __init__(self):
        self.x, self.y = torch.tensor(frame.iloc[:, :16].values), torch.tensor(frame["label"].values)

    def __len__(self):
        return len(frame)

    def __getitem__(self, index):
        if FIXED:
            return self.x[index], self.y[index]
        row = frame.iloc[index]  # planted
        return torch.tensor(row[:16].to_numpy("float32")), int(row["label"])  # planted


model = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 5))
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(Frame(), batch_size=64, shuffle=True)
while running():
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not running():
            break
