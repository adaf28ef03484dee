"""A classifier whose augmentation flips images pixel by pixel."""

import torch
from clock import FIXED, running
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Flip:
    def __call__(self, image):
        flipped = image.clone()
        for y in range(image.shape[1]):
            for x in range(image.shape[2]):
                flipped[:, y, x] = image[:, y, -1 - x]  # planted
        return flipped


class Fast:
    def __call__(self, image):
        return image.flip(2)


class Images(Dataset):
    def __init__(self, transform):
        self.images, self.transform = torch.rand(2000, 3, 20, 20), transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.transform(self.images[index]), index % 10


model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 18 * 18, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while running():
    for images, labels in DataLoader(Images(Fast() if FIXED else Flip()), batch_size=32, shuffle=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        if not running():
            break
