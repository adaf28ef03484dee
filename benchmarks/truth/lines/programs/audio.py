"""Audio clips read from WAV files and unpacked sample by sample."""

import array
import math
import os
import struct
import tempfile
import wave

import torch
from clock import FIXED, running
from torch import nn
from torch.utils.data import DataLoader, Dataset

FOLDER = tempfile.mkdtemp()
for number in range(32):
    with wave.open(os.path.join(FOLDER, f"{number}.wav"), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(array.array("h", (int(9000 * math.sin(t * number / 99)) for t in range(8000))).tobytes())


class Clips(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        with wave.open(os.path.join(FOLDER, f"{index}.wav")) as file:
            frames = file.readframes(file.getnframes())
        if FIXED:
            return torch.frombuffer(bytearray(frames), dtype=torch.int16) / 32768, index % 4
        samples = []
        for at in range(0, len(frames), 2):
            samples.append(struct.unpack_from("<h", frames, at)[0] / 32768)  # planted
        return torch.tensor(samples), index % 4


model = nn.Sequential(
    nn.Conv1d(1, 16, 64, stride=32), nn.ReLU(), nn.AdaptiveAvgPool1d(8), nn.Flatten(), nn.Linear(128, 4)
)
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(Clips(), batch_size=8, shuffle=True)
while running():
    for clips, labels in loader:
        loss = nn.functional.cross_entropy(model(clips[:, None]), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not running():
            break
