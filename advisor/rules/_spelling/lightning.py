"""Changes for Lightning, as arguments of its Trainer or of Fabric.

The program keeps its own DataLoader and optimizer.
"""

from dataclasses import replace

from advisor.metrics.input import loader
from advisor.rules._spelling.own_loop import Half, OwnLoop
from advisor.rules.base import Change, python

PRECISIONS = {"bf16": "bf16-mixed", "fp16": "16-mixed"}


class Lightning(OwnLoop):
    """Changes as arguments of `lightning.Trainer`."""

    configured_by = "Trainer"

    def loader(self, **settings: object) -> tuple[Change, ...]:
        """Return the loader's change.

        If Lightning creates the loader (from_datasets), the change is placed where the program passes the data.
        """
        (change,) = super().loader(**settings)
        place = self.m[loader].place
        if change.file is not None or place is None:
            return (change,)
        code = f"# arguments of the DataLoader or DataModule that is passed on this line:\n{change.code}"
        return (replace(change, code=code, file=place.file, line=place.line),)

    def copy_ahead(self) -> tuple[Change, ...]:
        """Return no change: Lightning already copies pinned batches without blocking."""
        return ()

    def half(self, precision: Half) -> tuple[Change, ...]:
        """Return the `precision` argument; `16-mixed` includes a GradScaler."""
        return self._arguments({"precision": PRECISIONS[precision]})

    def cudnn_benchmark(self) -> tuple[Change, ...]:
        """Return the `benchmark` argument, because the Trainer overrides the global flag."""
        return self._arguments({"benchmark": True})

    def accumulate(self, k: int, micro: int | None = None) -> tuple[Change, ...]:
        """Return the `accumulate_grad_batches` argument; the Trainer then reduces gradients once per update."""
        batch_changes, setting = self.batch_size(micro) if micro else (), "accumulate_grad_batches"
        return (*batch_changes, *self._arguments({setting: k}, {setting: self._accumulated}))

    def shard(self, stage: int) -> tuple[Change, ...]:
        """Return the name of the DeepSpeed strategy for the stage."""
        return self._arguments({"strategy": f"deepspeed_stage_{stage}"})

    def log_every(self, k: int) -> tuple[Change, ...]:
        """Return how often `self.log` and the loggers write."""
        return self._arguments({"log_every_n_steps": k})

    def save_every(self, k: int, about: str, *, in_background: bool) -> tuple[Change, ...]:
        """Return the callback that saves checkpoints, set to every `k` training steps."""
        code = (
            "from lightning.pytorch.callbacks import ModelCheckpoint\n\n"
            f"{self._configuring}(..., callbacks=[ModelCheckpoint(every_n_train_steps={k})])  # about every {about}\n"
        )
        return (python(code, self._place),)

    def evaluate_every(self, k: int) -> tuple[Change, ...]:
        """Return the interval in epochs; if validation runs within epochs, return plain PyTorch code."""
        within_epochs = self.call is not None and "val_check_interval" in self.call.settings
        return super().evaluate_every(k) if within_epochs else self._arguments({"check_val_every_n_epoch": k})

    def no_anomaly_detection(self) -> tuple[Change, ...]:
        """Return the `detect_anomaly` argument, turned off."""
        return self._arguments({"detect_anomaly": False}, {"detect_anomaly": True})

    def less_profiling(self) -> tuple[Change, ...]:
        """Return the `profiler` argument, turned off: a Trainer's profiler covers the whole run."""
        return self._arguments({"profiler": None})


class Fabric(OwnLoop):
    """Changes for `lightning.fabric.Fabric`, whose loop the program writes itself."""

    configured_by = "Fabric"

    def half(self, precision: Half) -> tuple[Change, ...]:
        """Return the `precision` argument; `16-mixed` includes a GradScaler."""
        return self._arguments({"precision": PRECISIONS[precision]})

    def accumulate(self, k: int, micro: int | None = None) -> tuple[Change, ...]:
        """Return a loop that accumulates with `fabric.backward` and reduces gradients once per update."""
        code = (
            f"accumulate = {k}\n"
            "for i, (inputs, targets) in enumerate(loader, start=1):\n"
            f"    with fabric.no_backward_sync({self.model}, enabled=i % accumulate != 0):  # reduce gradients once\n"
            f"        loss = loss_function({self.model}(inputs), targets) / accumulate\n"
            "        fabric.backward(loss)\n"
            "    if i % accumulate == 0:\n"
            f"        {self.optimizer}.step()\n"
            f"        {self.optimizer}.zero_grad(set_to_none=True)\n"
        )
        return (*(self.batch_size(micro) if micro else ()), python(code))
