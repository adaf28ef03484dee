"""Identify the spans of a step that were evaluation, by what the loop does with its batches.

A fetch begins a batch. A batch with a backward pass is training; one with only a forward pass is evaluation. So is a
forward pass in evaluation mode, without gradients, of a model that is being trained (a loop without a DataLoader).
Frozen teachers and target networks run inside training batches and stay part of them. Passes without a loader that
occur in every step, such as the rollouts of reinforcement learning, are the step's own work. A pass in evaluation mode
with gradients is evaluation in any step if the same model is called in training mode before a backward pass could use
it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from profiler.agent import ring
from profiler.agent.ring import Event

EVALUATION = -1
"""Kind of the span that replaces a recognized stretch of evaluation."""

_UPDATES = (ring.BACKWARD, ring.OPTIMIZER)
_JUDGED = frozenset((ring.FETCH, ring.ITER, ring.FORWARD, ring.BACKWARD))
_OTHERS = (ring.SAVE, ring.ITER, ring.FETCH)  # never part of an evaluation without a loader


@dataclass
class EvaluationJudge:
    """The known loaders and models of one process, updated with every step."""

    trained: set[int] = field(default_factory=set)
    """Loaders whose batches were trained on."""
    evaluated: set[int] = field(default_factory=set)
    """Loaders with evaluated batches; some of them may also be in `trained`."""
    grad: bool | None = None
    """Whether evaluation ran with gradients enabled; None until an evaluation was seen."""
    _roots: set[int] = field(default_factory=set)
    """Models that were called in training."""

    def is_plain(self, spans: list[Event]) -> bool:
        """Return whether a step is one batch, trained on, with nothing that could be evaluation.

        Nearly all steps are like this.
        """
        evidence = [span for span in spans if span.kind in _JUDGED]
        fetches = evidence[:1] if evidence and evidence[0].kind == ring.FETCH and not evidence[0].b else []
        passes = evidence[len(fetches) :]
        forwards = [span for span in passes if span.kind == ring.FORWARD and span.a and span.b]
        backwards = [span for span in passes if span.kind == ring.BACKWARD]
        if not backwards or len(forwards) + len(backwards) < len(passes):
            return False
        self._roots.update(span.id for span in forwards)
        self.trained.update(span.id for span in fetches)
        return True

    def carve(self, spans: list[Event], again: bool) -> tuple[list[Event], bool]:
        """Replace each stretch of evaluation in a step by one span of kind EVALUATION.

        Returns the new spans, and whether the model was called without a loader for something other than training. If
        `again`, the previous step had such calls, too, and they count as the step's own work. Spans must be in order.
        """
        marked: set[int] = set()
        alone: set[int] = set()
        batches = _batches(spans)
        doubtful = [self._is_doubtful(spans, batch, last=batch is batches[-1]) for batch in batches]
        # Judge used batches first: a batch that was only fetched ahead provides no evidence by itself.
        for number in sorted(range(len(batches)), key=lambda number: not batches[number].is_used):
            if not doubtful[number] or self._is_one_of_many(spans, batches, doubtful, number):
                self._judge(batches[number], marked, alone)
        unused = _unused(spans)
        marked |= unused
        alone -= unused
        called_alone = bool(alone) or any(
            span.kind == ring.FORWARD and not (span.a or span.b) and span.id in self._roots and position not in marked
            for position, span in enumerate(spans)
        )
        if not again:
            marked |= alone
        for position, span in enumerate(spans):
            if span.kind == ring.FORWARD and position in marked:
                self.grad = bool(self.grad) or bool(span.b)
            elif (span.kind == ring.ITER or _ends_epoch(span)) and self._only_evaluated(span.id):
                marked.add(position)
        return (_joined(spans, marked) if marked else spans), called_alone

    def _only_evaluated(self, loader: int) -> bool:
        return loader in self.evaluated and loader not in self.trained

    def _is_doubtful(self, spans: list[Event], batch: _Batch, *, last: bool) -> bool:
        """Return whether a batch has forward passes with gradients but no backward pass.

        The backward pass may follow with the next batch (of another loader, as in semi-supervised training), or it was
        skipped, failed or cut off. In evaluation mode, this is possible only if the batch is the last one or its loader
        is trained on.
        """
        forwards = batch.forwards.values()
        if batch.is_updated or not forwards or not all(forward.b for forward in forwards):
            return False
        return last or all(forward.a for forward in forwards) or self._is_midst_of_training(spans, batch)

    def _is_one_of_many(self, spans: list[Event], batches: list[_Batch], doubtful: list[bool], number: int) -> bool:
        """Return whether a doubtful batch has a doubtful neighbor of the same loader.

        Several in a row are an evaluation that forgot both `eval()` and `no_grad()`.
        """
        batch = batches[number]
        if not batch.loaders or self._is_midst_of_training(spans, batch):
            return False
        neighbors = [neighbor for neighbor in (number - 1, number + 1) if 0 <= neighbor < len(batches)]
        return any(doubtful[neighbor] and batches[neighbor].loaders[:1] == batch.loaders[:1] for neighbor in neighbors)

    def _is_midst_of_training(self, spans: list[Event], batch: _Batch) -> bool:
        """Return whether the batch's loader is trained on and this is not a whole pass through it."""
        if not self.trained.intersection(batch.loaders[:1]):
            return False
        loader = batch.loaders[0]
        has_start = any(span.kind == ring.ITER and span.id == loader for span in spans[: min(batch.spans)])
        has_end = any(_ends_epoch(span) and span.id == loader for span in spans[max(batch.spans) + 1 :])
        return not (has_start and has_end)

    def _judge(self, batch: _Batch, marked: set[int], alone: set[int]) -> None:
        """Mark evaluation recognized by its loader; add possible evaluation without a loader to `alone`."""
        if batch.is_updated:
            self.trained.update(batch.loaders)
            for position, span in batch.forwards.items():
                if span.b:
                    self._roots.add(span.id)
                elif not span.a and span.id in self._roots:
                    alone.add(position)
        elif not batch.loaders:
            if batch.forwards:
                alone |= {index for index, span in batch.spans.items() if span.kind not in _OTHERS}
        elif batch.forwards or all(map(self._only_evaluated, batch.loaders)):
            self.evaluated.update(batch.loaders)
            marked |= {index for index, span in batch.spans.items() if span.kind != ring.SAVE}


@dataclass(slots=True)
class _Batch:
    """A part of a step that begins with a fetch, or with fetches of several loaders in a row."""

    loaders: list[int] = field(default_factory=list)
    """Loaders that it was fetched from; none before the first fetch and at the end of an epoch."""
    spans: dict[int, Event] = field(default_factory=dict)
    """Its spans by their position in the step."""
    forwards: dict[int, Event] = field(default_factory=dict)
    """The forward passes among them, by position."""
    is_updated: bool = False
    """Whether a backward pass or an update is among its spans."""

    @property
    def is_used(self) -> bool:
        """Return whether the batch was used by a forward pass, backward pass or update."""
        return self.is_updated or bool(self.forwards)


def _batches(spans: list[Event]) -> list[_Batch]:
    """Return the batches of a step; the first one holds the spans before any fetch."""
    batches = [_Batch()]
    fetching = False
    """Whether the batch has contained only fetches so far."""
    for position, span in enumerate(spans):
        if span.kind == ring.FETCH:
            if not fetching or span.b or span.id in batches[-1].loaders:
                batches.append(_Batch())
            fetching = not span.b
            batches[-1].loaders += [span.id] if fetching else []
        elif span.kind != ring.GC:
            fetching = False
        batch = batches[-1]
        batch.spans[position] = span
        batch.is_updated |= span.kind in _UPDATES
        if span.kind == ring.FORWARD:
            batch.forwards[position] = span
    return batches


def _ends_epoch(span: Event) -> bool:
    return span.kind == ring.FETCH and bool(span.b)


def _unused(spans: list[Event]) -> set[int]:
    """Return the positions of passes, in evaluation mode with gradients, that no backward pass can use.

    They precede the step's first batch, and the same model is called in training mode before the next backward pass.
    """
    first_batch = next(
        (index for index, span in enumerate(spans) if span.kind == ring.FETCH and not span.b), len(spans)
    )
    unused: set[int] = set()
    training_models: set[int] = set()
    """Models called in training mode between here and the next backward pass."""
    updated = False
    for position in range(len(spans) - 1, -1, -1):
        span = spans[position]
        if span.kind in _UPDATES:
            training_models, updated = set(), True
        elif span.kind == ring.FORWARD and span.b:
            if span.a and updated:
                training_models.add(span.id)
            elif not span.a and span.id in training_models and position < first_batch:
                unused.add(position)
    return unused


def _joined(spans: list[Event], marked: set[int]) -> list[Event]:
    """Join runs of marked spans into one span each; everything inside a run, gaps included, belongs to it."""
    remaining: list[Event] = []
    runs: list[Event] = []
    inside = False
    for position, span in enumerate(spans):
        if position in marked and inside:
            runs[-1] = runs[-1]._replace(end=max(runs[-1].end, span.end))
        elif position in marked:
            inside = True
            runs.append(span._replace(kind=EVALUATION))
        elif not inside or span.end > runs[-1].end:
            inside = False
            remaining.append(span)
        elif span.kind == ring.SAVE:
            remaining.append(span)
    return sorted([*remaining, *runs], key=lambda event: (event.start, -event.end))
