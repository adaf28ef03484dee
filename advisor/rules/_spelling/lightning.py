"""Lightning: arguments of its Trainer, or of Fabric; the DataLoader and the optimizer stay the program's own."""

from __future__ import annotations

from advisor.metrics.step import micro_steps_per_step
from advisor.rules._spelling.call import configured, python
from advisor.rules._spelling.own_loop import Half, OwnLoop
from advisor.rules.base import Change

PRECISIONS = {"bf16": "bf16-mixed", "fp16": "16-mixed"}


class Lightning(OwnLoop):
    """lightning.Trainer."""

    name = "Trainer"

    def copy_ahead(self) -> tuple[Change, ...]:
        """Lightning copies without waiting whatever is pinned."""
        return ()

    def half(self, precision: Half) -> tuple[Change, ...]:
        """The GradScaler comes with 16-mixed."""
        return self._arguments({"precision": PRECISIONS[precision]})

    def cudnn_benchmark(self) -> tuple[Change, ...]:
        """The Trainer would set it back."""
        return self._arguments({"benchmark": True})

    def accumulate(self, k: int, micro: int | None = None) -> tuple[Change, ...]:
        """Gradients are reduced once by itself."""
        now = self.m.get(micro_steps_per_step)
        known: dict[str, object] = {"accumulate_grad_batches": round(now) if now else None}
        return (*(self.batch_size(micro) if micro else ()), *self._arguments({"accumulate_grad_batches": k}, known))

    def shard(self, stage: int) -> tuple[Change, ...]:
        """By the name of its strategies."""
        return self._arguments({"strategy": f"deepspeed_stage_{stage}"})

    def log_every(self, k: int) -> tuple[Change, ...]:
        """What self.log and the loggers write."""
        return self._arguments({"log_every_n_steps": k})

    def save_every(self, k: int, about: str, *, in_background: bool) -> tuple[Change, ...]:
        """By the callback that saves."""
        code = (
            "from lightning.pytorch.callbacks import ModelCheckpoint\n\n"
            f"{self._name}(..., callbacks=[ModelCheckpoint(every_n_train_steps={k})])  # about every {about}\n"
        )
        return (python(code, self.call.place if self.call else None),)

    def no_anomaly_detection(self) -> tuple[Change, ...]:
        """An argument here."""
        return self._arguments({"detect_anomaly": False}, {"detect_anomaly": True})

    def less_profiling(self) -> tuple[Change, ...]:
        """A Trainer's profiler is on for the whole run."""
        return self._arguments({"profiler": None})

    @property
    def _name(self) -> str:
        return self.call.name if self.call is not None and self.call.name.isidentifier() else self.name

    def _arguments(self, settings: dict[str, object], known: dict[str, object] | None = None) -> tuple[Change, ...]:
        return (configured(self.call, self.name, settings, known or {}),)


class Fabric(OwnLoop):
    """lightning.fabric.Fabric, whose loop the program writes out."""

    def half(self, precision: Half) -> tuple[Change, ...]:
        """An argument; the GradScaler comes with 16-mixed."""
        return (configured(self.call, "Fabric", {"precision": PRECISIONS[precision]}, {}),)

    def accumulate(self, k: int, micro: int | None = None) -> tuple[Change, ...]:
        """fabric.backward, reduced once."""
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
