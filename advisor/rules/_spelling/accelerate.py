"""Changes for Hugging Face Accelerate: `Accelerator` arguments around the program's own loop."""

from advisor.metrics.settings import model
from advisor.rules._spelling.own_loop import Half, OwnLoop
from advisor.rules.base import Change, python


class Accelerate(OwnLoop):
    """Changes for `accelerate.Accelerator`.

    Values from `accelerate launch` or its configuration file apply only where these arguments are not set.
    """

    configured_by = "Accelerator"

    def copy_ahead(self) -> tuple[Change, ...]:
        """Return the non-blocking setting of the prepared DataLoader, which copies the batches."""
        code = (
            "from accelerate.utils import DataLoaderConfiguration\n\n"
            "Accelerator(..., dataloader_config=DataLoaderConfiguration(non_blocking=True))\n"
        )
        return (python(code, self._place),)

    def half(self, precision: Half) -> tuple[Change, ...]:
        """Return the `mixed_precision` argument; fp16 includes a GradScaler."""
        return self._arguments({"mixed_precision": precision})

    def compile(self, mode: str | None = None) -> tuple[Change, ...]:
        """Return an `Accelerator` argument; `prepare` then compiles the model."""
        if mode is None:
            return self._arguments({"dynamo_backend": "inductor"})
        code = (
            "from accelerate.utils import TorchDynamoPlugin\n\n"
            f'Accelerator(..., dynamo_plugin=TorchDynamoPlugin(backend="inductor", mode="{mode}"))\n'
        )
        return (python(code, self._place),)

    def accumulate(self, k: int, micro: int | None = None) -> tuple[Change, ...]:
        """Return code that accumulates under `accelerator.accumulate`.

        The context manager scales the loss, reduces gradients once per update, and skips the updates in between.
        """
        loop = (
            "for inputs, targets in loader:\n"
            f"    with accelerator.accumulate({self.model}):\n"
            f"        accelerator.backward(loss_function({self.model}(inputs), targets))\n"
            f"        {self.optimizer}.step()\n"
            f"        {self.optimizer}.zero_grad()\n"
        )
        batch_changes, setting = self.batch_size(micro) if micro else (), "gradient_accumulation_steps"
        return (*batch_changes, *self._arguments({setting: k}, {setting: self._accumulated}), python(loop))

    def shard(self, stage: int) -> tuple[Change, ...]:
        """Return an FSDP2 plugin.

        Stage 3 gathers weights again for the backward pass; stage 2 keeps them gathered.
        """
        fact = self.m.get(model)
        block = fact.block if fact else None
        wrap_policy = (
            f'    auto_wrap_policy="transformer_based_wrap",\n    transformer_cls_names_to_wrap=[{block!r}],\n'
            if block
            else ""
        )
        code = (
            "from accelerate import FullyShardedDataParallelPlugin\n\n"
            "plugin = FullyShardedDataParallelPlugin(\n"
            f"    fsdp_version=2,\n    reshard_after_forward={stage == 3},\n{wrap_policy})\n"
            "Accelerator(..., fsdp_plugin=plugin)\n"
        )
        return (python(code, self._place),)

    def save_every(self, k: int, about: str, *, in_background: bool) -> tuple[Change, ...]:
        """Return code that saves all prepared objects at every `k`-th step."""
        code = f"if step % {k} == 0:  # about every {about}\n    accelerator.save_state(path)\n"
        return (python(code),)
