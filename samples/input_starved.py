"""Train a small convolutional network on photos that are slow to read: the model waits for its data.

Every photo takes 5 ms to fetch and decode, and the DataLoader does that in the training process, one photo after the
other. With --fixed, eight worker processes (sixteen with a GPU) do it in parallel, and are kept between epochs.
"""

import argparse
import sys
import time
from itertools import islice

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES = 10


class Photos(Dataset):
    """Photos on slow storage. The sleep stands for fetching and decoding."""

    def __init__(self, count, size):
        self.count, self.size = count, size

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(0.005)
        label = index % CLASSES
        noise = torch.randn(3, self.size, self.size, generator=torch.Generator().manual_seed(index))
        return noise + label / CLASSES, label


def network(width):
    layers, channels = [], 3
    for _ in range(4):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))


def forever(loader):
    while True:
        yield from loader


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--fixed", action="store_true", help="load with worker processes")
    args = parser.parse_args()

    torch.manual_seed(0)
    gpu = torch.cuda.is_available()
    device = "cuda" if gpu else "cpu"
    if not gpu:
        torch.set_num_threads(1)  # the other cores decode
    size, width, batch, workers = (128, 192, 32, 16) if gpu else (24, 32, 8, 8)
    cure = {"num_workers": workers, "persistent_workers": True} if args.fixed else {}
    loader = DataLoader(Photos(50 * batch, size), batch_size=batch, shuffle=True, pin_memory=gpu, **cure)
    model = network(width).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=True)

    for step, (images, labels) in enumerate(islice(forever(loader), args.steps), 1):
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 10:
            start = time.perf_counter()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    if args.steps > 10:
        seconds = (time.perf_counter() - start) / (args.steps - 10)
        print(f"{seconds * 1e3:.1f} ms a step, {batch / seconds:.0f} photos a second", file=sys.stderr)


if __name__ == "__main__":
    main()
