"""An experiment class that evaluates on all held-out data after each step, without gradients."""

import torch
from clock import FIXED, running
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class Classifier(nn.Module):
    def __init__(self, n_in=40, n_out=6):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_in, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
        self.head = nn.Linear(128, n_out)

    def forward(self, x):
        return self.head(self.body(x))


class Experiment:
    def __init__(self):
        full = TensorDataset(torch.randn(5000, 40), torch.randint(0, 6, (5000,)))
        train, val = random_split(full, [4000, 1000])
        self.train_loader = DataLoader(train, batch_size=128, shuffle=True)
        self.val_loader = DataLoader(val, batch_size=250)
        self.model = Classifier()
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.RMSprop(self.model.parameters(), lr=1e-3)
        self.best = 0.0

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        correct = total = 0
        for inputs, targets in self.val_loader:  # planted
            pred = self.model(inputs).argmax(-1)  # planted
            correct += (pred == targets).sum().item()
            total += len(targets)
        self.model.train()
        return correct / total

    def run(self):
        step = 0
        while running():
            for inputs, targets in self.train_loader:
                loss = self.criterion(self.model(inputs), targets)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                step += 1
                if step % (13 if FIXED else 1) == 0:
                    self.best = max(self.best, self.validate())  # planted
                if not running():
                    return


Experiment().run()
