"""Train with one fault, named on the command line, that costs a large share of the step."""

import argparse

import torch
from common import Pace, say
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("fault", choices=("item", "blocking", "pageable", "tiny"))
parser.add_argument("--steps", type=int, default=400)
args = parser.parse_args()


class Batches(Dataset):
    """Large batches where the copy is the fault."""

    def __init__(self):
        rows = 64 if args.fault in ("item", "tiny") else 16384
        self.batch = torch.randn(rows, 1024)

    def __len__(self):
        return args.steps

    def __getitem__(self, index):
        return self.batch


def main():
    torch.manual_seed(0)
    if args.fault == "tiny":
        model = nn.Sequential(*[layer for _ in range(60) for layer in (nn.Linear(1024, 1024), nn.ReLU())])
    else:
        model = nn.Sequential(nn.Linear(1024, 2048), nn.GELU(), nn.Linear(2048, 1024))
    model = model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    loader = DataLoader(Batches(), batch_size=None, pin_memory=args.fault == "blocking")
    watched = 0.0
    pace = Pace()
    for batch in loader:
        batch = batch.to("cuda", non_blocking=args.fault in ("pageable", "tiny"))
        loss = model(batch).square().mean()
        loss.backward()
        if args.fault == "item":
            for parameter in model.parameters():
                watched += parameter.grad.norm().item()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        pace.step()
    torch.cuda.synchronize()
    say(step=pace.median())


if __name__ == "__main__":
    main()
