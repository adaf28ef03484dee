"""Changes for a training loop written in plain PyTorch.

They also apply to everything a framework leaves to the program. A change holds the code to write and its
location. Where a setting's current value is known, the change also shows it.
"""

import json
from typing import Literal

from advisor.metrics.base import Metrics
from advisor.metrics.input import loader
from advisor.metrics.program import configuration, model_variable, optimizer_variable, save_place
from advisor.metrics.settings import flags, model, optimizer, world_size
from advisor.metrics.step import micro_steps_per_step
from advisor.rules.base import Change, CodeDifference, python
from profiler.schema import LoaderFact, OptimizerFact, Place

Half = Literal["bf16", "fp16"]

NOT_SET = "not set"


class OwnLoop:
    """The changes that rules suggest, written for this run's program.

    This class writes plain PyTorch. A framework's subclass overrides what the framework configures itself.
    """

    configured_by = ""
    """The class or function whose arguments configure the framework."""
    chooses_blocks = True
    """Whether some blocks can be checkpointed without checkpointing all of them."""

    def __init__(self, m: Metrics) -> None:
        self.m = m
        self.model = m.get(model_variable) or "model"
        self.optimizer = m.get(optimizer_variable) or "optimizer"
        self.call = m.get(configuration)

    # ---- the loader ----

    def loader(self, **settings: object) -> tuple[Change, ...]:
        """Return the DataLoader call with these arguments set and all others unchanged."""
        fact = self.m[loader]
        dataset = fact.dataset if fact.dataset.isidentifier() else "as before"
        old_values = {name: getattr(fact, name, None) for name in settings}
        lines = [
            f"    {name}={value!r},{_was(old_values.get(name, value), value)}\n"
            for name, value in {"batch_size": fact.batch_size, **settings}.items()
            if name in settings or value is not None
        ]
        code = f"DataLoader(\n    dataset,  # {dataset}\n{''.join(lines)}    # all other arguments as before\n)\n"
        return (self._at(fact, code, old_values, settings),)

    def batch_size(self, size: int) -> tuple[Change, ...]:
        """Return the DataLoader call with this batch size."""
        fact = self.m[loader]
        code = f"torch.utils.data.DataLoader(..., batch_size={size})  # was {fact.batch_size}\n"
        return (self._at(fact, code, {"batch_size": fact.batch_size}, {"batch_size": size}),)

    def copy_ahead(self) -> tuple[Change, ...]:
        """Return a non-blocking copy of the batch to the GPU."""
        return (python('inputs = inputs.to("cuda", non_blocking=True)  # each tensor of the batch\n'),)

    # ---- precision ----

    def half(self, precision: Half) -> tuple[Change, ...]:
        """Return code that runs the forward pass and the loss in 16 bits."""
        return (python(self._bf16() if precision == "bf16" else self._fp16()),)

    def tf32(self) -> tuple[Change, ...]:
        """Return the setting that runs fp32 matmuls on tensor cores."""
        settings = self.m.get(flags)
        precision = settings.matmul_precision if settings else None
        differences = [CodeDifference("float32_matmul_precision", _source(precision), '"high"')] if precision else []
        code = 'torch.set_float32_matmul_precision("high")  # once, before the first step\n'
        return (python(code, None, differences),)

    def cudnn_benchmark(self) -> tuple[Change, ...]:
        """Return the setting that lets cuDNN time its algorithms."""
        return (python("torch.backends.cudnn.benchmark = True  # before the first batch\n"),)

    # ---- the model and its optimizer ----

    def compile(self, mode: str | None = None) -> tuple[Change, ...]:
        """Return the line that compiles the model."""
        fact = self.m.get(model)
        comment = f"  # the {fact.name}" if fact and fact.name.isidentifier() else ""
        argument = f", mode={mode!r}" if mode else ""
        wrapper_note = ", before it is wrapped for distributed training" if fact and fact.wrappers else ""
        assignment = f"{self.model} = torch.compile({self.model}{argument}){comment}"
        code = f"import torch\n\n# after it was moved to the GPU{wrapper_note}\n{assignment}\n"
        return (python(code, fact.place if fact else None),)

    def fused(self) -> tuple[Change, ...]:
        """Return the optimizer call with `fused=True`, which updates all tensors in few passes."""
        fact = self.m[optimizer]
        note = " instead of foreach=True" if fact.foreach else ""
        code = f"torch.optim.{fact.name}(..., fused=True)  # its other arguments as before{note}\n"
        old_value = NOT_SET if fact.fused is None else repr(fact.fused)
        return (python(code, _of_program(fact), [CodeDifference("fused", old_value, "True")]),)

    def eight_bit(self) -> tuple[Change, ...]:
        """Return an 8-bit optimizer that keeps the moments of embeddings in 32 bits.

        With several ranks the optimizer is torchao's, because bitsandbytes does not accept sharded tensors.
        """
        fact = self.m[optimizer]
        code = self._torchao(fact.name) if self.m[world_size] > 1 else self._bitsandbytes(fact.name)
        return (python(code, _of_program(fact), [CodeDifference("optimizer", fact.name, f"{fact.name}8bit")]),)

    def learning_rate(self, factor: float, why: str) -> tuple[Change, ...]:
        """Return the optimizer call with the learning rate multiplied by `factor`; nothing if it is unknown."""
        fact = self.m.get(optimizer)
        if fact is None or fact.lr is None:
            return ()
        rate = fact.lr * factor
        name = fact.name if fact.name.isidentifier() else "Optimizer"  # users copy this code
        code = f"torch.optim.{name}(..., lr={rate:.3g})  # was {fact.lr:.3g}; {why}\n"
        return (python(code, _of_program(fact), [CodeDifference("lr", f"{fact.lr:.3g}", f"{rate:.3g}")]),)

    # ---- memory ----

    def accumulate(self, k: int, micro: int | None = None) -> tuple[Change, ...]:
        """Return a loop that updates once per `k` micro-batches and reduces gradients once per update.

        Args:
            k: Micro-batches per update.
            micro: Samples per micro-batch; None leaves the batch size as it is.
        """
        context_line, sync_line = self._reduced_once()
        pass_lines = [f"loss = loss_function({self.model}(inputs), targets) / accumulate", "loss.backward()"]
        if context_line:  # includes the forward pass, in which DDP decides whether to reduce gradients
            pass_lines = [context_line, *(f"    {line}" for line in pass_lines)]
        lines = [
            *(["import contextlib", ""] if "contextlib" in context_line else []),
            f"accumulate = {k}",
            "for i, (inputs, targets) in enumerate(loader, start=1):",
            *([f"    {sync_line}"] if sync_line else []),
            *(f"    {line}" for line in pass_lines),
            "    if i % accumulate == 0:",
            f"        {self.optimizer}.step()",
            f"        {self.optimizer}.zero_grad(set_to_none=True)",
        ]
        accumulated = self._accumulated
        differences = (
            [CodeDifference("micro-batches per update", str(accumulated), str(k))]
            if accumulated and accumulated != k
            else []
        )
        return (*(self.batch_size(micro) if micro else ()), python("\n".join(lines) + "\n", None, differences))

    def checkpoint(self, block: str, every: int) -> tuple[Change, ...]:
        """Return code that checkpoints every `every`-th block.

        Blocks are found by class, because a model may not keep them in one list.
        """
        selection = f"blocks[::{every}]" if every > 1 else "blocks"
        code = (
            "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing\n\n"
            "# before the optimizer and any DDP or FSDP wrapper are created\n"
            f"blocks = [module for module in {self.model}.modules() if type(module).__name__ == {block!r}]\n"
            f"apply_activation_checkpointing({self.model}, check_fn=lambda module: module in {selection})\n"
        )
        fact = self.m.get(model)
        return (python(code, fact.place if fact else None),)

    def no_checkpoints(self) -> tuple[Change, ...]:
        """Return code that turns activation checkpointing off."""
        code = (
            f"{self.model}.gradient_checkpointing_disable()  # transformers; or gradient_checkpointing=False\n"
            "# elsewhere: call the block itself instead of torch.utils.checkpoint.checkpoint(block, ...)\n"
        )
        return (python(code),)

    def shard(self, stage: int) -> tuple[Change, ...]:
        """Return the framework's setting for a ZeRO stage; nothing if it has none."""
        return ()

    # ---- periodic work ----

    def log_every(self, k: int) -> tuple[Change, ...]:
        """Return code that logs only at every `k`-th step."""
        return (python(f"if step % {k} == 0:\n    log(step, loss.detach())  # metrics, print, write, flush\n"),)

    def save_every(self, k: int, about: str, *, in_background: bool) -> tuple[Change, ...]:
        """Return code that saves a checkpoint only at every `k`-th step.

        Args:
            k: Steps from one checkpoint to the next.
            about: The same interval as a time, for a comment.
            in_background: Whether to mention asynchronous saving as well.
        """
        state = f'{{"model": {self.model}.state_dict(), "optimizer": {self.optimizer}.state_dict()}}'
        code = f"if step % {k} == 0:  # about every {about}\n    torch.save({state}, path)\n"
        if in_background:
            code += (
                "# or, in the background: torch.distributed.checkpoint.async_save(state, checkpoint_id=path), and\n"
                "# wait for the future it returns before the next one\n"
            )
        return (python(code, self.m.get(save_place)),)

    def evaluate_every(self, k: int) -> tuple[Change, ...]:
        """Return code that runs only every `k`-th evaluation."""
        return (python(f"if epoch % {k} == 0:  # or the step, or your own counter of evaluations\n    evaluate()\n"),)

    # ---- debugging ----

    def no_anomaly_detection(self) -> tuple[Change, ...]:
        """Return the line that turns anomaly detection off."""
        difference = CodeDifference("detect_anomaly", "True", "False")
        return (python("torch.autograd.set_detect_anomaly(False)\n", None, [difference]),)

    def less_profiling(self) -> tuple[Change, ...]:
        """Return a profiler schedule that records only a few steps."""
        schedule = "torch.profiler.schedule(wait=100, warmup=1, active=3, repeat=1)"
        return (python(f"torch.profiler.profile(schedule={schedule})\n"),)

    # ---- internals ----

    @property
    def _accumulated(self) -> int | None:
        """Return the present number of micro-batches per update; None if it is unknown."""
        return round(self.m.get(micro_steps_per_step) or 0) or None

    @property
    def _place(self) -> Place | None:
        """Return where the framework is configured, if the source shows it."""
        return self.call.place if self.call else None

    def _arguments(self, settings: dict[str, object], known: dict[str, object] | None = None) -> tuple[Change, ...]:
        """Return the change to the call that configures the framework.

        For the old value of a setting, the program's source takes precedence over the measured value.
        """
        new_values = {key: _source(value) for key, value in settings.items()}
        old_values = {key: _source(value) for key, value in (known or {}).items() if value is not None}
        if self.call is not None:
            old_values = dict.fromkeys(new_values, NOT_SET) | old_values | self.call.settings
        if len(new_values) == 1:
            ((key, value),) = new_values.items()
            code = f"{self._configuring}(..., {key}={value})  # its other arguments as before\n"
        else:
            lines = "".join(f"    {key}={value},\n" for key, value in new_values.items())
            code = f"{self._configuring}(\n    ...,  # its other arguments as before\n{lines})\n"
        changed_keys = [key for key in new_values if old_values.get(key, new_values[key]) != new_values[key]]
        return (
            python(code, self._place, [CodeDifference(key, old_values[key], new_values[key]) for key in changed_keys]),
        )

    @property
    def _configuring(self) -> str:
        """Return the name that the program calls to configure the framework, such as the name of a subclass."""
        return self.call.name if self.call and self.call.name.isidentifier() else self.configured_by

    def _at(self, fact: LoaderFact, code: str, before: dict[str, object], settings: dict[str, object]) -> Change:
        """Return a change located at the DataLoader call, if the program itself makes that call."""
        differences = [
            CodeDifference(name, _source(before[name]), _source(value))
            for name, value in settings.items()
            if before.get(name) is not None and before[name] != value
        ]
        return python(code, _of_program(fact), differences)

    def _bf16(self) -> str:
        if "FSDPModule" in self._wrappers:
            return (
                "from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard\n\n"
                "policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)\n"
                f"fully_shard({self.model}, mp_policy=policy)  # and each block; no GradScaler is needed\n"
            )
        return (
            'with torch.autocast("cuda", dtype=torch.bfloat16):\n'
            f"    loss = loss_function({self.model}(inputs), targets)\n"
            "loss.backward()  # outside autocast; bf16 needs no GradScaler\n"
        )

    def _fp16(self) -> str:
        # The scale starts at 2^16, halves at an overflow and doubles after 2000 steps without one: GradScaler's
        # defaults.
        return (
            'scaler = torch.amp.GradScaler("cuda", init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, '
            "growth_interval=2000)\n\n"
            "for inputs, targets in loader:\n"
            f"    {self.optimizer}.zero_grad(set_to_none=True)\n"
            '    with torch.autocast("cuda", dtype=torch.float16):\n'
            f"        loss = loss_function({self.model}(inputs), targets)\n"
            "    scaler.scale(loss).backward()\n"
            f"    scaler.unscale_({self.optimizer})  # before any clipping of gradients\n"
            f"    scaler.step({self.optimizer})  # skips the step if a gradient overflowed\n"
            "    scaler.update()\n"
        )

    def _bitsandbytes(self, name: str) -> str:
        return (
            "import bitsandbytes as bnb\n\n"
            f"for module in {self.model}.modules():\n"
            "    if isinstance(module, torch.nn.Embedding):\n"
            "        bnb.optim.GlobalOptimManager.get_instance().register_module_override(\n"
            '            module, "weight", {"optim_bits": 32}\n'
            "        )\n"
            f"{self.optimizer} = bnb.optim.{name}8bit({self.model}.parameters())  # its other arguments as before\n"
        )

    def _torchao(self, name: str) -> str:
        return (
            f"from torchao.optim import {name}8bit\n\n"
            f"{self.optimizer} = {name}8bit({self.model}.parameters())  # its other arguments as before\n"
        )

    def _reduced_once(self) -> tuple[str, str]:
        """Return code that lets only the last micro-batch of an update reduce gradients.

        The first string is a context to put around forward and backward, the second a line to put before them. Either
        is empty if it is not needed.
        """
        settings = self.m.get(flags)
        if "FSDPModule" in self._wrappers:
            return "", f"{self.model}.set_requires_gradient_sync(i % accumulate == 0)  # reduce gradients once"
        if (settings and settings.ddp) or "FullyShardedDataParallel" in self._wrappers:
            context = f"contextlib.nullcontext() if i % accumulate == 0 else {self.model}.no_sync()"
            return f"with {context}:  # reduce gradients once", ""
        return "", ""

    @property
    def _wrappers(self) -> tuple[str, ...]:
        fact = self.m.get(model)
        return fact.wrappers if fact else ()


def _of_program(fact: LoaderFact | OptimizerFact) -> Place | None:
    """Return where the program itself creates the object; None if a framework does."""
    return fact.place if fact.place and not fact.place.via else None


def _was(before: object, now: object) -> str:
    return f"  # was {before!r}" if before != now and before is not None else ""


def _source(value: object) -> str:
    """Return the value as Python source, with strings in double quotes."""
    return json.dumps(value) if isinstance(value, str) else repr(value)
