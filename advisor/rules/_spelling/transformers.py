"""The Trainer of Hugging Face transformers: nearly everything is an argument of TrainingArguments."""

from __future__ import annotations

import json

from advisor.metrics.input import loader
from advisor.metrics.settings import flags, optimizer, world_size
from advisor.metrics.step import micro_steps_per_step
from advisor.rules._spelling.call import configured, python
from advisor.rules._spelling.own_loop import Half, OwnLoop
from advisor.rules.base import Change

ARGUMENTS = {
    "num_workers": "dataloader_num_workers",
    "persistent_workers": "dataloader_persistent_workers",
    "prefetch_factor": "dataloader_prefetch_factor",
    "pin_memory": "dataloader_pin_memory",
    "batch_size": "per_device_train_batch_size",
}


class Transformers(OwnLoop):
    """TrainingArguments, or what the program derives from it."""

    chooses_blocks = False

    def loader(self, **settings: object) -> tuple[Change, ...]:
        """The Trainer makes the DataLoader."""
        fact = self.m[loader]
        named = {ARGUMENTS[name]: each for name, each in settings.items()}
        return self._arguments(named, {ARGUMENTS[name]: getattr(fact, name, None) for name in settings})

    def batch_size(self, size: int) -> tuple[Change, ...]:
        """A GPU."""
        return self.loader(batch_size=size)

    def copy_ahead(self) -> tuple[Change, ...]:
        """accelerate copies the batches."""
        return self._arguments({"accelerator_config": {"non_blocking": True}})

    def half(self, precision: Half) -> tuple[Change, ...]:
        """One of the two, the other off."""
        settings = self.m.get(flags)
        other = "fp16" if precision == "bf16" else "bf16"
        off = {other: False} if settings and settings.autocast else {}
        return self._arguments({precision: True, **off})

    def tf32(self) -> tuple[Change, ...]:
        """A switch of its own."""
        return self._arguments({"tf32": True})

    def compile(self, mode: str | None = None) -> tuple[Change, ...]:
        """The Trainer compiles the model itself."""
        return self._arguments({"torch_compile": True, **({"torch_compile_mode": mode} if mode else {})})

    def fused(self) -> tuple[Change, ...]:
        """By name, of those that the Trainer makes; others are handed to it."""
        return self._arguments({"optim": "adamw_torch_fused"}) if self._makes_adamw else super().fused()

    def eight_bit(self) -> tuple[Change, ...]:
        """The Trainer keeps embeddings in 32 bits by itself."""
        if not self._makes_adamw:
            return super().eight_bit()
        return self._arguments({"optim": "adamw_torch_8bit" if self.m[world_size] > 1 else "adamw_bnb_8bit"})

    def learning_rate(self, factor: float, why: str) -> tuple[Change, ...]:
        """Of what its argument says; the optimizer has that of the schedule at some moment."""
        try:
            said = float(self.call.settings["learning_rate"] if self.call and self._made_by_trainer else "")
        except (KeyError, ValueError):
            return super().learning_rate(factor, why)
        return self._arguments({"learning_rate": float(f"{said * factor:.3g}")})

    def accumulate(self, k: int, micro: int | None = None) -> tuple[Change, ...]:
        """The Trainer does the rest."""
        now = self.m.get(micro_steps_per_step)
        known: dict[str, object] = {"gradient_accumulation_steps": round(now) if now else None}
        if micro is None:
            return self._arguments({"gradient_accumulation_steps": k}, known)
        known["per_device_train_batch_size"] = self.m[loader].batch_size
        return self._arguments({"per_device_train_batch_size": micro, "gradient_accumulation_steps": k}, known)

    def checkpoint(self, block: str, every: int) -> tuple[Change, ...]:
        """Every block, whatever `every` says: the Trainer knows no other way."""
        return self._arguments({"gradient_checkpointing": True})

    def no_checkpoints(self) -> tuple[Change, ...]:
        """The same switch."""
        return self._arguments({"gradient_checkpointing": False})

    def shard(self, stage: int) -> tuple[Change, ...]:
        """By DeepSpeed, whose settings are the same in all versions; "auto" is taken from TrainingArguments."""
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
        """Updates, not batches."""
        return self._arguments({"logging_steps": k})

    def save_every(self, k: int, about: str, *, in_background: bool) -> tuple[Change, ...]:
        """Updates, not batches."""
        return self._arguments({"save_strategy": "steps", "save_steps": k})

    @property
    def _made_by_trainer(self) -> bool:
        fact = self.m.get(optimizer)
        return fact is not None and fact.place is not None and "transformers" in fact.place.via

    @property
    def _makes_adamw(self) -> bool:
        return self._made_by_trainer and self.m[optimizer].name == "AdamW"

    def _arguments(self, settings: dict[str, object], known: dict[str, object] | None = None) -> tuple[Change, ...]:
        change = configured(self.call, "TrainingArguments", settings, known or {})
        if self.call is not None or any(isinstance(each, dict) for each in settings.values()):
            return (change,)
        words = " ".join(f"--{name} {each}" for name, each in settings.items())
        return (python(f"{change.code}# or, where the script reads it from the command line: {words}\n"),)
