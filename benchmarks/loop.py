"""The training program that overhead.py times, whichever tool watches it. It runs blocks of steps on request."""

import time

first_line = time.monotonic()

import torch  # noqa: E402, F401 - its import is timed

imported = time.monotonic()

import argparse  # noqa: E402
from pathlib import Path  # noqa: E402

from loops import LOOPS  # noqa: E402
from training import build  # noqa: E402
from turns import Turns  # noqa: E402
from watching import WATCHES  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loop", choices=LOOPS)
    parser.add_argument("folder", type=Path, help="where the pipes are")
    parser.add_argument("steps", type=int, help="steps per block")
    parser.add_argument("seconds", type=float, help="most seconds of a block")
    parser.add_argument("--watch", choices=WATCHES, default="nobody")
    args = parser.parse_args()

    training = build(LOOPS[args.loop])
    train = WATCHES[args.watch](training.train, training.model, args.folder)
    batches = training.batches()
    turns = Turns(args.folder, args.steps, args.seconds, first_line, imported)
    while turns.begin():
        going = True
        while going:
            train(next(batches))
            going = turns.step()


if __name__ == "__main__":
    main()
