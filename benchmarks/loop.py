"""The training loop that overhead.py times. It measures itself, in the same way whoever watches it.

It runs --blocks blocks of --steps steps. With --turns it waits before each until it is told to go on, so that two such
processes can take turns. It writes a JSON object to the file named last: the monotonic time of its first line, of the
end of torch's import and of the end of the loop, and for every block the wall time of each step and the CPU time of
the process per step. All in seconds.
"""

import time

first_line = time.monotonic()

import torch  # noqa: E402 - its import is timed

imported = time.monotonic()

import argparse  # noqa: E402
import itertools  # noqa: E402
import json  # noqa: E402
from contextlib import nullcontext  # noqa: E402
from pathlib import Path  # noqa: E402

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402


def network(width):
    sizes = [256] + [width] * 5
    layers = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def forever(loader):
    while True:
        yield from loader


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--blocks", type=int, required=True)
    parser.add_argument("--turns", type=Path, help="folder with the pipes `go` and `done`")
    parser.add_argument("--traceml", action="store_true", help="call the peer as its manual says a plain loop should")
    parser.add_argument("result", type=Path)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = network(args.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, labels = torch.randn(args.batch * 50, 256), torch.randint(10, (args.batch * 50,))
    batches = forever(DataLoader(TensorDataset(inputs, labels), batch_size=args.batch, shuffle=True))

    traced = nullcontext
    if args.traceml:
        import traceml_ai

        traceml_ai.init(mode="auto")

        def traced():
            return traceml_ai.trace_step(model)

    go = done = None
    if args.turns:
        go, done = (args.turns / "go").open("rb", 0), (args.turns / "done").open("wb", 0)

    blocks = []
    for _ in range(args.blocks):
        if done:
            done.write(b".")
            if not go.read(1):
                raise SystemExit("the benchmark is gone")
        walls, cpu, last = [], time.process_time(), time.perf_counter()
        for x, y in itertools.islice(batches, args.steps):
            with traced():
                loss = nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            now = time.perf_counter()
            walls.append(now - last)
            last = now
        blocks.append({"walls": walls, "cpu": (time.process_time() - cpu) / args.steps})
    measured = {"first_line": first_line, "imported": imported, "loop_end": time.monotonic(), "blocks": blocks}
    args.result.write_text(json.dumps(measured))
    if done:
        done.write(b".")


if __name__ == "__main__":
    main()
