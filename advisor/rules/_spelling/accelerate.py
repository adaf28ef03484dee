"""Hugging Face accelerate: arguments of Accelerator around a loop that the program writes out."""

from __future__ import annotations

from advisor.metrics.settings import model
from advisor.metrics.step import micro_steps_per_step
from advisor.rules._spelling.call import configured, python
from advisor.rules._spelling.own_loop import Half, OwnLoop
from advisor.rules.base import Change


class Accelerate(OwnLoop):
    """accelerate.Accelerator; what `accelerate launch` or its configuration say stands behind these arguments."""

    def copy_ahead(self) -> tuple[Change, ...]:
        """The prepared DataLoader copies its batches."""
        code = (
            "from accelerate.utils import DataLoaderConfiguration\n\n"
            "Accelerator(..., dataloader_config=DataLoaderConfiguration(non_blocking=True))\n"
        )
        return (python(code, self.call.place if self.call else None),)

    def half(self, precision: Half) -> tuple[Change, ...]:
        """The GradScaler comes with fp16."""
        return self._arguments({"mixed_precision": precision})

    def compile(self, mode: str | None = None) -> tuple[Change, ...]:
        """`prepare` compiles the model itself."""
        if mode is None:
            return self._arguments({"dynamo_backend": "inductor"})
        code = (
            "from accelerate.utils import TorchDynamoPlugin\n\n"
            f'Accelerator(..., dynamo_plugin=TorchDynamoPlugin(backend="inductor", mode="{mode}"))\n'
        )
        return (python(code, self.call.place if self.call else None),)

    def accumulate(self, k: int, micro: int | None = None) -> tuple[Change, ...]:
        """Within `accumulate` it scales the loss, reduces once and leaves out the updates between."""
        now = self.m.get(micro_steps_per_step)
        known: dict[str, object] = {"gradient_accumulation_steps": round(now) if now else None}
        loop = (
            "for inputs, targets in loader:\n"
            f"    with accelerator.accumulate({self.model}):\n"
            f"        accelerator.backward(loss_function({self.model}(inputs), targets))\n"
            f"        {self.optimizer}.step()\n"
            f"        {self.optimizer}.zero_grad()\n"
        )
        size = self.batch_size(micro) if micro else ()
        return (*size, *self._arguments({"gradient_accumulation_steps": k}, known), python(loop))

    def shard(self, stage: int) -> tuple[Change, ...]:
        """FSDP2: stage 3 gathers weights anew for the backward pass, stage 2 keeps them."""
        fact = self.m.get(model)
        block = fact.block if fact else None
        wrapped = (
            f'    auto_wrap_policy="transformer_based_wrap",\n    transformer_cls_names_to_wrap=[{block!r}],\n'
            if block
            else ""
        )
        code = (
            "from accelerate import FullyShardedDataParallelPlugin\n\n"
            "plugin = FullyShardedDataParallelPlugin(\n"
            f"    fsdp_version=2,\n    reshard_after_forward={stage == 3},\n{wrapped})\n"
            "Accelerator(..., fsdp_plugin=plugin)\n"
        )
        return (python(code, self.call.place if self.call else None),)

    def save_every(self, k: int, about: str, *, in_background: bool) -> tuple[Change, ...]:
        """Everything that was prepared."""
        code = f"if step % {k} == 0:  # about every {about}\n    accelerator.save_state(path)\n"
        return (python(code),)

    def _arguments(self, settings: dict[str, object], known: dict[str, object] | None = None) -> tuple[Change, ...]:
        return (configured(self.call, "Accelerator", settings, known or {}),)
