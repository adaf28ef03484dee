"""Compute the activations of one sample, and what remains of them with activation checkpointing."""

from dataclasses import dataclass

from advisor.models.activations import LOGIT_BYTES, KeptParts, Layer, logits
from advisor.models.memory import RECOMPUTE, Layers, layers
from advisor.units import ordinal
from profiler.errors import ProfilerError

# Share of the forward pass in forward and backward together; recomputing everything repeats it once.
FORWARD = RECOMPUTE - 1

# Bytes per element of logits in fp32, with a second copy for the loss.
LOGIT_BYTES_FP32 = 8


@dataclass(frozen=True, slots=True)
class ActivationCheckpointing:
    """A choice of activations to recompute instead of keeping them."""

    every: int | None = None
    """Interval of checkpointed blocks: every N-th, or 1 for each of them; None for none."""
    selective: bool = False
    """Whether only the attention scores are recomputed."""
    extra: float = 0.0
    """Share of the forward and backward pass that recomputing adds."""

    @property
    def name(self) -> str:
        """Return the name in a table."""
        if self.selective:
            return "selective"
        match self.every:
            case None:
                return "none"
            case 1:
                return "full"
            case _:
                return f"every {ordinal(self.every)}"


NONE = ActivationCheckpointing()


def every(number: int) -> ActivationCheckpointing:
    """Return the checkpointing of every N-th block."""
    return ActivationCheckpointing(every=number, extra=FORWARD / number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Activations:
    """Bytes of activations per sample."""

    whole: float
    """Bytes without checkpointing, logits included."""
    layers: Layers | None
    """The part that checkpointing can free; None if the number of layers is not known."""
    selective: float | None = None
    """Bytes with attention scores recomputed; None if they are not kept anyway, or if this is not known."""
    selective_extra: float = 0.0
    source: str
    """Source of these numbers, for the reader."""

    def kept(self, how: ActivationCheckpointing) -> float | None:
        """Return the bytes that are kept; None if not known."""
        if how.selective:
            return self.selective
        if how.every is None:
            return self.whole
        return None if self.layers is None else self.whole - self.layers.kept(None) + self.layers.kept(how.every)

    @property
    def choices(self) -> tuple[ActivationCheckpointing, ...]:
        """Return the choices to show side by side, from none to full."""
        choices = [NONE]
        if self.selective is not None:
            choices.append(self.by_selection)
        if self.layers is not None:
            choices += [every(number) for number in (4, 2, 1) if number <= self.layers.number]
        return tuple(choices)

    @property
    def by_selection(self) -> ActivationCheckpointing:
        """Return the checkpointing that only recomputes attention scores."""
        return ActivationCheckpointing(selective=True, extra=self.selective_extra)

    def least(self, batch: int, room: float) -> ActivationCheckpointing | None:
        """Return the checkpointing that recomputes least and fits `batch` samples into `room` bytes.

        None if nothing fits.
        """
        if batch * self.whole <= room:
            return NONE
        options = [] if self.selective is None else [self.by_selection]
        if self.layers is not None:
            interval = self.layers.every(self.whole - room / batch)
            options += [every(number) for number in {interval, max(1, interval - 1), 1}]  # rounding may be off by one
        fitting_options = [option for option in options if batch * (self.kept(option) or 0.0) <= room]
        return min(fitting_options, key=lambda option: option.extra, default=None)


def of_shape(*, layer: Layer, number: int, vocabulary: int | None, flash: bool, element: int) -> Activations:
    """Return the activations of a transformer with `number` layers; `layer.batch` is 1.

    Raises:
        ProfilerError: the heads do not divide the hidden size.
    """
    if layer.hidden % layer.heads:
        raise ProfilerError(
            f"{layer.heads} heads do not divide a hidden size of {layer.hidden}.",
            f"Choose a number of heads that divides the hidden size, such as --heads {_nearest(layer)}.",
        )
    kept_parts = KeptParts.NO_SCORES if flash else KeptParts.SCORES
    blocks = Layers(
        number=number,
        activations=layer.activations(kept_parts, element=element),
        boundary=layer.activations(KeptParts.INPUT, element=element),
    )
    logit_bytes = 0.0
    if vocabulary is not None:
        share = LOGIT_BYTES_FP32 / LOGIT_BYTES if element == 4 else 1.0
        logit_bytes = share * logits(layer.sequence, layer.batch, vocabulary)
    return Activations(
        whole=blocks.kept(None) + logit_bytes,
        layers=blocks,
        selective=None if flash else number * layer.activations(KeptParts.NO_SCORES, element=element) + logit_bytes,
        selective_extra=layer.selective_overhead,
        source=f"{number} transformer layers of hidden size {layer.hidden:,}, sequences of {layer.sequence:,} tokens"
        + (", flash attention" if flash else ", attention that keeps its scores")
        + ("" if vocabulary is None else f", logits over {vocabulary:,} words"),
    )


def measured(each: float, number: int | None) -> Activations:
    """Return activations as measured, per sample."""
    return Activations(
        whole=each,
        layers=None if number is None else layers(number, each),
        source="as given"
        + ("" if number is None else f", in {number} equal layers each with 1/17 of its activations as input"),
    )


def _nearest(layer: Layer) -> int:
    divisors = [heads for heads in range(1, layer.hidden + 1) if layer.hidden % heads == 0]
    return min(divisors, key=lambda heads: abs(heads - layer.heads))
