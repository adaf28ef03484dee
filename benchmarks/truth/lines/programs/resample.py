"""Audio resampled for each item, by a lambda that calls a function inside a function."""

import math

import torch
from clock import FIXED, running
from torch import nn
from torch.utils.data import DataLoader, Dataset


def make_transform(step):
    def at(wave, time):
        left = int(time)
        return wave[left] + (time - left) * (wave[min(left + 1, len(wave) - 1)] - wave[left])  # planted

    if FIXED:
        return lambda wave: nn.functional.interpolate(wave[None, None], scale_factor=1 / step, mode="linear")[0]
    return lambda wave: torch.tensor([at(wave, k * step) for k in range(int(len(wave) / step))])[None]  # planted


class Speech(Dataset):
    def __init__(self, transform):
        self.transform = transform
        waves = ([math.sin(time * (k + 1) / 50) for time in range(4410)] for k in range(40))
        self.waves = [torch.tensor(wave) if FIXED else wave for wave in waves]

    def __len__(self):
        return 4 * len(self.waves)

    def __getitem__(self, i):
        return self.transform(self.waves[i % len(self.waves)]), i % 5


model = nn.Sequential(nn.Conv1d(1, 32, 80, 16), nn.ReLU(), nn.AdaptiveAvgPool1d(8), nn.Flatten(), nn.Linear(256, 5))
loader = DataLoader(Speech(make_transform(44100 / 16000)), batch_size=16, shuffle=True)
optimizer = torch.optim.Adam(model.parameters())
while running():
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not running():
            break
