"""Changes for DeepSpeed, made in its JSON configuration.

The program keeps its own DataLoader, and any optimizer that it passes to DeepSpeed.
"""

import json

from advisor.metrics.input import loader
from advisor.metrics.settings import data_parallel_size, optimizer
from advisor.rules._spelling.own_loop import Half, OwnLoop
from advisor.rules.base import Change, CodeDifference, python


class DeepSpeed(OwnLoop):
    """Changes for `deepspeed.initialize` and the engine it returns."""

    def half(self, precision: Half) -> tuple[Change, ...]:
        """Return the setting for 16-bit weights.

        The optimizer keeps an fp32 copy; with fp16, DeepSpeed scales the loss itself.
        """
        return self._config({precision: {"enabled": True}})

    def compile(self, mode: str | None = None) -> tuple[Change, ...]:
        """Return code that lets the engine compile the model it wraps."""
        arguments = f'compile_kwargs={{"mode": "{mode}"}}' if mode else ""
        code = f"engine.compile({arguments})  # the engine that deepspeed.initialize returned\n"
        return (python(code, self._place),)

    def fused(self) -> tuple[Change, ...]:
        """Return the setting for a fused optimizer.

        Optimizers that DeepSpeed creates are fused unless `torch_adam` is on, so that is turned off. For an optimizer
        that the program creates, return the plain PyTorch change.
        """
        fact = self.m[optimizer]
        if fact.place is None or "deepspeed" not in fact.place.via:
            return super().fused()
        return self._config({"optimizer": {"type": fact.name, "params": {"torch_adam": False}}})

    def eight_bit(self) -> tuple[Change, ...]:
        """Return code that passes a bitsandbytes optimizer to DeepSpeed.

        bitsandbytes accepts DeepSpeed's flat buffers. ZeRO accepts such an optimizer only with
        `zero_allow_untested_optimizer`.
        """
        change = python(self._bitsandbytes(self.m[optimizer].name))
        return (change, *self._config({"zero_allow_untested_optimizer": True}))

    def learning_rate(self, factor: float, why: str) -> tuple[Change, ...]:
        """Return the learning rate in DeepSpeed's configuration if DeepSpeed creates the optimizer."""
        fact = self.m.get(optimizer)
        if fact is None or fact.lr is None or fact.place is None or "deepspeed" not in fact.place.via:
            return super().learning_rate(factor, why)
        rate = fact.lr * factor
        params = {"lr": float(f"{rate:.3g}")}
        difference = CodeDifference("lr", f"{fact.lr:.3g}", f"{rate:.3g}")
        return self._config({"optimizer": {"type": fact.name, "params": params}}, difference)

    def batch_size(self, size: int) -> tuple[Change, ...]:
        """Return the batch size for both the DataLoader and the configuration, which must agree."""
        return (*super().batch_size(size), *self._batch(size, self._accumulated or 1))

    def accumulate(self, k: int, micro: int | None = None) -> tuple[Change, ...]:
        """Return the accumulation setting; the engine then updates at every `k`-th call of `step`."""
        accumulated = self._accumulated
        differences = (CodeDifference("gradient_accumulation_steps", str(accumulated), str(k)),) if accumulated else ()
        batch_changes = super().batch_size(micro) if micro else ()
        return (*batch_changes, *self._batch(micro or self.m[loader].batch_size, k, *differences))

    def shard(self, stage: int) -> tuple[Change, ...]:
        """Return the ZeRO configuration for the stage."""
        return self._config({"zero_optimization": {"stage": stage, "overlap_comm": True}})

    def save_every(self, k: int, about: str, *, in_background: bool) -> tuple[Change, ...]:
        """Return code that saves a checkpoint through the engine; each rank writes its own part."""
        return (python(f"if step % {k} == 0:  # about every {about}\n    engine.save_checkpoint(path)\n"),)

    def _batch(self, micro: int | None, k: int, *differences: CodeDifference) -> tuple[Change, ...]:
        """Return all three batch settings together, because DeepSpeed requires them to agree."""
        config: dict[str, object] = {"gradient_accumulation_steps": k}
        if micro:
            ranks = self.m.get(data_parallel_size) or 1
            config |= {"train_micro_batch_size_per_gpu": micro, "train_batch_size": micro * k * ranks}
        return self._config(config, *differences)

    def _config(self, config: dict[str, object], *differences: CodeDifference) -> tuple[Change, ...]:
        """Return a change with these configuration keys.

        It points to the configuration file if the source names one, otherwise to the call that passes the
        configuration to DeepSpeed.
        """
        file, line = None, None
        if self.call is not None:
            file, line = self.call.place.file, self.call.place.line
            config_file = self.call.settings.get("config")
            if config_file and config_file != "None":
                file, line = config_file.strip('"'), None
        return (
            Change(
                language="json", code=json.dumps(config, indent=2) + "\n", file=file, line=line, differences=differences
            ),
        )
