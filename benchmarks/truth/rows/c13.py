"""C13: a sample is read from 64 files of a kilobyte each."""

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from training import begin, cores, steps

PARTS, PART = 64, 256
POOL = 2048
"""Number of files: samples share them, because writing a file per part would take longer than the training."""


class Files(Dataset):
    """Each part of a sample in a file of its own."""

    def __init__(self, folder, samples):
        self.folder, self.samples = folder, samples
        for number in range(POOL):
            np.full(PART, number, np.float32).tofile(folder / f"{number}.bin")

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        parts = [np.fromfile(self.folder / f"{number}.bin", np.float32) for number in files_of(index)]
        return combined(np.concatenate(parts)), self.samples[index][1]


class Shard(Dataset):
    """All parts of all samples in one file."""

    def __init__(self, folder, samples):
        self.samples = samples
        self.every = np.lib.format.open_memmap(folder / "samples.npy", "w+", np.float32, (POOL // PARTS, PARTS * PART))
        for index in range(POOL // PARTS):
            self.every[index] = np.repeat(np.array(files_of(index), np.float32), PART)
        self.every.flush()

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return combined(self.every[index % len(self.every)].copy()), self.samples[index][1]


def files_of(index):
    return [(index * PARTS + part) % POOL for part in range(PARTS)]


def combined(numbers):
    """Return the mean of the parts, as many numbers as the model takes."""
    return torch.from_numpy(numbers).view(PARTS, PART).mean(0) / POOL


def main():
    args, task = begin(__doc__)
    workers = max(1, cores() - 1)
    with tempfile.TemporaryDirectory() as folder:
        samples = Shard(Path(folder), task.samples) if args.fixed else Files(Path(folder), task.samples)
        loader = DataLoader(samples, batch_size=task.batch, shuffle=True, num_workers=workers, persistent_workers=True)
        optimizer = torch.optim.SGD(task.model.parameters(), lr=0.01)

        for _, batch in steps(loader, args, task.model):
            loss = task.loss(task.model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
