"""The same training in Lightning's Trainer, with or without its simple profiler."""

import time

first_line = time.monotonic()

import torch  # noqa: E402

imported = time.monotonic()

import argparse  # noqa: E402
import logging  # noqa: E402
import warnings  # noqa: E402
from pathlib import Path  # noqa: E402

import lightning  # noqa: E402
from loops import LOOPS  # noqa: E402
from training import loader, network  # noqa: E402
from turns import Turns  # noqa: E402


class Module(lightning.LightningModule):
    def __init__(self, loop, turns):
        super().__init__()
        self.network = network(loop)
        self.turns = turns
        self.going = False

    def on_train_batch_start(self, batch, batch_idx):
        if not self.going and not self.turns.begin():
            self.trainer.should_stop = True
            return -1
        return None

    def training_step(self, batch, batch_idx):
        x, y = batch
        return torch.nn.functional.cross_entropy(self.network(x), y)

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.going = self.turns.step()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loop", choices=LOOPS)
    parser.add_argument("folder", type=Path, help="where the pipes are")
    parser.add_argument("steps", type=int, help="steps per block")
    parser.add_argument("seconds", type=float, help="most seconds of a block")
    parser.add_argument("--profiler", choices=("simple",))
    args = parser.parse_args()

    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loop = LOOPS[args.loop]
    module = Module(loop, Turns(args.folder, args.steps, args.seconds, first_line, imported))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=-1,
        profiler=args.profiler,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=args.folder,
    )
    trainer.fit(module, loader(loop))


if __name__ == "__main__":
    main()
