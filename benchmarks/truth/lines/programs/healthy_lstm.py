"""An LSTM over a DataLoader, validated once an epoch."""

import torch
from clock import running
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(16, 64, batch_first=True), nn.Linear(64, 1)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


train = DataLoader(TensorDataset(torch.randn(12000, 40, 16), torch.randn(12000, 1)), batch_size=64)
held_out = DataLoader(TensorDataset(torch.randn(500, 40, 16), torch.randn(500, 1)), batch_size=250)
model = Net()
optimizer = torch.optim.Adam(model.parameters(), fused=True)
while running():
    for x, y in train:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not running():
            break
    model.eval()
    with torch.no_grad():
        print(sum(nn.functional.mse_loss(model(x), y).item() for x, y in held_out) / len(held_out))
    model.train()
