"""A convolutional network in a custom loop that prints occasionally."""

import torch
from clock import running
from torch import nn

model = nn.Sequential(
    *(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU()),
    *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def compute_loss(images, labels):
    return nn.functional.cross_entropy(model(images), labels)


def main():
    images, labels = torch.randn(500, 3, 32, 32), torch.randint(0, 10, (500,))
    step = 0
    while running():
        index = torch.randint(0, 500, (16,))
        loss = compute_loss(images[index], labels[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 50 == 0:
            print(step, loss.item())


main()
