"""Changes for the Hugging Face Trainer; nearly all of them are `TrainingArguments`."""

import json

from advisor.metrics.between import evaluations
from advisor.metrics.input import loader
from advisor.metrics.settings import flags, optimizer, world_size
from advisor.metrics.step import recording
from advisor.rules._spelling.own_loop import Half, OwnLoop
from advisor.rules.base import Change, python

ARGUMENTS = {
    "num_workers": "dataloader_num_workers",
    "persistent_workers": "dataloader_persistent_workers",
    "prefetch_factor": "dataloader_prefetch_factor",
    "pin_memory": "dataloader_pin_memory",
    "batch_size": "per_device_train_batch_size",
}


class Transformers(OwnLoop):
    """Changes for `TrainingArguments`, or the program's subclass of it."""

    configured_by = "TrainingArguments"
    chooses_blocks = False

    def loader(self, **settings: object) -> tuple[Change, ...]:
        """Return the `TrainingArguments` for the DataLoader, which the Trainer creates."""
        fact = self.m[loader]
        arguments = {ARGUMENTS[name]: value for name, value in settings.items()}
        return self._arguments(arguments, {ARGUMENTS[name]: getattr(fact, name, None) for name in settings})

    def batch_size(self, size: int) -> tuple[Change, ...]:
        """Return the batch size per GPU."""
        return self.loader(batch_size=size)

    def copy_ahead(self) -> tuple[Change, ...]:
        """Return the non-blocking setting of accelerate, which copies the batches."""
        return self._arguments({"accelerator_config": {"non_blocking": True}})

    def half(self, precision: Half) -> tuple[Change, ...]:
        """Return the `bf16` or `fp16` argument, with the other one turned off."""
        settings = self.m.get(flags)
        other_precision = "fp16" if precision == "bf16" else "bf16"
        disabled = {other_precision: False} if settings and settings.autocast else {}
        return self._arguments({precision: True, **disabled})

    def tf32(self) -> tuple[Change, ...]:
        """Return the argument that lets fp32 matmuls run in TF32."""
        return self._arguments({"tf32": True})

    def compile(self, mode: str | None = None) -> tuple[Change, ...]:
        """Return the arguments with which the Trainer compiles the model."""
        return self._arguments({"torch_compile": True, **({"torch_compile_mode": mode} if mode else {})})

    def fused(self) -> tuple[Change, ...]:
        """Return the name of the fused optimizer; an optimizer the program creates is changed at its own call."""
        return self._arguments({"optim": "adamw_torch_fused"}) if self._makes_adamw else super().fused()

    def eight_bit(self) -> tuple[Change, ...]:
        """Return the name of the 8-bit optimizer; the Trainer keeps embeddings in 32 bits."""
        if not self._makes_adamw:
            return super().eight_bit()
        return self._arguments({"optim": "adamw_torch_8bit" if self.m[world_size] > 1 else "adamw_bnb_8bit"})

    def learning_rate(self, factor: float, why: str) -> tuple[Change, ...]:
        """Return the scaled `learning_rate` argument.

        The base is the argument's value if it is known, because the optimizer holds the schedule's rate at one
        moment.
        """
        try:
            rate = float(self.call.settings["learning_rate"] if self.call and self._made_by_trainer else "")
        except (KeyError, ValueError):
            return super().learning_rate(factor, why)
        return self._arguments({"learning_rate": float(f"{rate * factor:.3g}")})

    def accumulate(self, k: int, micro: int | None = None) -> tuple[Change, ...]:
        """Return the accumulation argument; the Trainer does the rest."""
        settings: dict[str, object] = {"gradient_accumulation_steps": k}
        known: dict[str, object] = {"gradient_accumulation_steps": self._accumulated}
        if micro is not None:
            settings = {"per_device_train_batch_size": micro, **settings}
            known["per_device_train_batch_size"] = self.m[loader].batch_size
        return self._arguments(settings, known)

    def checkpoint(self, block: str, every: int) -> tuple[Change, ...]:
        """Return the argument that checkpoints every block; the Trainer ignores `every`."""
        return self._arguments({"gradient_checkpointing": True})

    def no_checkpoints(self) -> tuple[Change, ...]:
        """Return the checkpointing argument, turned off."""
        return self._arguments({"gradient_checkpointing": False})

    def shard(self, stage: int) -> tuple[Change, ...]:
        """Return a DeepSpeed configuration, whose settings are the same in all versions.

        Values of "auto" are taken from `TrainingArguments`.
        """
        config = {
            "zero_optimization": {"stage": stage, "overlap_comm": True},
            "bf16": {"enabled": "auto"},
            "fp16": {"enabled": "auto"},
            "train_micro_batch_size_per_gpu": "auto",
            "gradient_accumulation_steps": "auto",
            "gradient_clipping": "auto",
        }
        text = json.dumps(config, indent=2) + "\n"
        return (
            *self._arguments({"deepspeed": "ds_config.json"}),
            Change(language="json", code=text, file="ds_config.json"),
        )

    def log_every(self, k: int) -> tuple[Change, ...]:
        """Return the logging interval, counted in updates rather than batches."""
        return self._arguments({"logging_steps": k})

    def save_every(self, k: int, about: str, *, in_background: bool) -> tuple[Change, ...]:
        """Return the checkpoint interval, counted in updates rather than batches."""
        return self._arguments({"save_strategy": "steps", "save_steps": k})

    def evaluate_every(self, k: int) -> tuple[Change, ...]:
        """Return the interval in updates, computed from the present one."""
        run, evaluation_count = self.m.get(recording), self.m.get(evaluations)
        if run is None or not evaluation_count:
            return super().evaluate_every(k)
        return self._arguments(
            {"eval_strategy": "steps", "eval_steps": k * max(1, round(run.steps / evaluation_count))}
        )

    @property
    def _made_by_trainer(self) -> bool:
        fact = self.m.get(optimizer)
        return fact is not None and fact.place is not None and "transformers" in fact.place.via

    @property
    def _makes_adamw(self) -> bool:
        return self._made_by_trainer and self.m[optimizer].name == "AdamW"

    def _arguments(self, settings: dict[str, object], known: dict[str, object] | None = None) -> tuple[Change, ...]:
        changes = super()._arguments(settings, known)
        if self.call is not None or any(isinstance(value, dict) for value in settings.values()):
            return changes
        options = " ".join(f"--{name} {value}" for name, value in settings.items())
        return (python(f"{changes[0].code}# or, where the script reads it from the command line: {options}\n"),)
