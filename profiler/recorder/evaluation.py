"""Which of a step's spans were evaluation: distinguished from training by what the loop does with its batches.

A fetch begins a batch. A batch with a backward pass is trained on; one with a forward pass only is evaluated, and so is
a forward pass in evaluation mode, without gradients, of a model that is being trained (a loop without a DataLoader).
Frozen teachers and target networks run inside training batches, and stay part of them. Passes without a loader that
come in every step, as the rollouts of reinforcement learning do, are the step's own work. A pass in evaluation mode
with gradients is an evaluation in any step if the same model is called to train before a backward pass could use it.
"""

from dataclasses import dataclass, field

from profiler.agent import ring
from profiler.agent.ring import Event

EVALUATION = -1
"""Kind of the span that replaces a recognized stretch of evaluation."""

_UPDATES = (ring.BACKWARD, ring.OPTIMIZER)
_OTHERS = (ring.SAVE, ring.ITER, ring.FETCH)  # no part of an evaluation without a loader


@dataclass
class EvaluationJudge:
    """The known loaders and models of one process; it learns with every step it judges."""

    trained: set[int] = field(default_factory=set)
    """Loaders whose batches were trained on."""
    evaluated: set[int] = field(default_factory=set)
    """Loaders with evaluated batches; one that was trained on may be among them."""
    grad: bool | None = None
    """Whether evaluation ran with gradients enabled; None until one was seen."""
    _roots: set[int] = field(default_factory=set)
    """Models that were called in training."""

    def is_plain(self, spans: list[Event]) -> bool:
        """Return whether a step is one batch, trained on, with nothing that could be evaluation.

        That is so for nearly all steps.
        """
        loader: int | None = None
        roots: list[int] = []
        updated = False
        for span in spans:
            kind = span.kind
            if kind == ring.FETCH:
                if span.b or loader is not None or roots or updated:
                    return False
                loader = span.id
            elif kind == ring.FORWARD:
                if not (span.a and span.b):
                    return False
                roots.append(span.id)
            elif kind == ring.BACKWARD:
                updated = True
            elif kind == ring.ITER:
                return False
        if updated:
            self._roots.update(roots)
            if loader is not None:
                self.trained.add(loader)
        return updated

    def carve(self, spans: list[Event], again: bool) -> tuple[list[Event], bool]:
        """Replace each stretch of evaluation in a step by one span of kind EVALUATION.

        Returns the new spans, and whether the model was called without a loader for something other than training. With
        `again` that was so in the step before, too, and such calls count as work of the step. Spans must be in order.
        """
        marked = [False] * len(spans)
        alone: list[int] = []
        batches = _batches(spans)
        doubtful = [self._is_doubtful(spans, batch, last=batch is batches[-1]) for batch in batches]
        # A batch that was fetched ahead shows nothing by itself: those that do come first.
        for number in sorted(range(len(batches)), key=lambda number: not _is_used(spans, batches[number])):
            if doubtful[number] and not self._is_one_of_many(spans, batches, doubtful, number):
                continue
            alone += self._judge(spans, batches[number], marked)
        unused = _unused(spans)
        for position in unused:
            marked[position] = True
        alone = [position for position in alone if position not in unused]
        found = bool(alone) or any(
            span.kind == ring.FORWARD and not (span.a or span.b) and span.id in self._roots and not marked[position]
            for position, span in enumerate(spans)
        )
        if not again:
            for position in alone:
                marked[position] = True
        for position, span in enumerate(spans):
            if span.kind == ring.FORWARD and marked[position]:
                self.grad = bool(self.grad) or bool(span.b)
            elif span.kind == ring.ITER or (span.kind == ring.FETCH and span.b):
                # what ends an evaluation loader's epoch, or makes its iterator
                marked[position] = marked[position] or self._only_evaluated(span.id)
        return (_joined(spans, marked) if any(marked) else spans), found

    def _only_evaluated(self, loader: int) -> bool:
        return loader in self.evaluated and loader not in self.trained

    def _is_doubtful(self, spans: list[Event], batch: list[int], *, last: bool) -> bool:
        """Return whether a batch has forward passes with gradients but no backward pass.

        The backward pass may follow with the next batch (of another loader, as in semi-supervised training), be
        skipped, have failed or been cut off. In evaluation mode that is possible only if the batch is the last, or its
        loader is one that is trained on.
        """
        forwards = [spans[position] for position in batch if spans[position].kind == ring.FORWARD]
        if not forwards or any(spans[position].kind in _UPDATES for position in batch):
            return False
        skipped = last or self._is_midst_of_training(spans, batch)
        return all(forward.b and (forward.a or skipped) for forward in forwards)

    def _is_one_of_many(self, spans: list[Event], batches: list[list[int]], doubtful: list[bool], number: int) -> bool:
        """Return whether a doubtful batch has a doubtful neighbor of the same loader.

        Several in a row are an evaluation that forgot both `eval()` and `no_grad()`.
        """
        loader = _loader(spans, batches[number])
        if loader is None or self._is_midst_of_training(spans, batches[number]):
            return False
        neighbors = [other for other in (number - 1, number + 1) if 0 <= other < len(batches)]
        return any(doubtful[other] and _loader(spans, batches[other]) == loader for other in neighbors)

    def _is_midst_of_training(self, spans: list[Event], batch: list[int]) -> bool:
        """Return whether the batch's loader is trained on and this is not a whole pass through it."""
        loader = _loader(spans, batch)
        if loader not in self.trained:
            return False
        begun = any(span.kind == ring.ITER and span.id == loader for span in spans[: batch[0]])
        ended = any(span.kind == ring.FETCH and span.b and span.id == loader for span in spans[batch[-1] + 1 :])
        return not (begun and ended)

    def _judge(self, spans: list[Event], batch: list[int], marked: list[bool]) -> list[int]:
        """Mark evaluation recognized by its loader; return positions that may be evaluation without a loader."""
        loaders = _loaders(spans, batch)
        forwards = [position for position in batch if spans[position].kind == ring.FORWARD]
        if any(spans[position].kind in _UPDATES for position in batch):
            self.trained |= loaders
            alone = []
            for position in forwards:
                span = spans[position]
                if span.b:
                    self._roots.add(span.id)
                elif not span.a and span.id in self._roots:
                    alone.append(position)
            return alone
        if not loaders:
            return [position for position in batch if spans[position].kind not in _OTHERS] if forwards else []
        if forwards:
            self.evaluated |= loaders
        elif not all(self._only_evaluated(loader) for loader in loaders):
            return []
        for position in batch:
            marked[position] = spans[position].kind != ring.SAVE
        return []


def _batches(spans: list[Event]) -> list[list[int]]:
    """Group the positions of the spans by batch. A fetch starts a batch, or several loaders' fetches in a row do."""
    batches: list[list[int]] = [[]]
    together: set[int] = set()
    """Loaders fetched from, if nothing else has happened in this batch."""
    for position, span in enumerate(spans):
        if span.kind == ring.FETCH:
            if not together or span.b or span.id in together:
                batches.append([])
                together = set()
            if not span.b:
                together.add(span.id)
        elif span.kind != ring.GC:
            together = set()
        batches[-1].append(position)
    return batches


def _unused(spans: list[Event]) -> set[int]:
    """Return the positions of passes before the step's first batch, in evaluation mode with gradients, after which the
    same model is called in training mode before any backward pass."""
    first = next(
        (position for position, span in enumerate(spans) if span.kind == ring.FETCH and not span.b), len(spans)
    )
    unused: set[int] = set()
    training: set[int] = set()
    """Models called in training mode between here and the next backward pass."""
    updated = False
    for position in range(len(spans) - 1, -1, -1):
        span = spans[position]
        if span.kind in _UPDATES:
            training, updated = set(), True
        elif span.kind == ring.FORWARD and span.b:
            if span.a and updated:
                training.add(span.id)
            elif not span.a and span.id in training and position < first:
                unused.add(position)
    return unused


def _is_used(spans: list[Event], batch: list[int]) -> bool:
    """Return whether the batch was used by a forward pass, backward pass or update."""
    return any(spans[position].kind in (ring.FORWARD, *_UPDATES) for position in batch)


def _loaders(spans: list[Event], batch: list[int]) -> set[int]:
    """Return the loaders of a batch; none before the first fetch and at the end of an epoch."""
    found = set()
    for position in batch:
        span = spans[position]
        if span.kind == ring.FETCH and not span.b:
            found.add(span.id)
        elif span.kind != ring.GC:
            break
    return found


def _loader(spans: list[Event], batch: list[int]) -> int | None:
    """Return the first loader of a batch, or None."""
    first = spans[batch[0]] if batch else None
    return first.id if first is not None and first.kind == ring.FETCH and not first.b else None


def _joined(spans: list[Event], marked: list[bool]) -> list[Event]:
    """Join runs of marked spans into one span each; everything inside a run, gaps included, belongs to it."""
    result: list[Event] = []
    start = end = None
    sample = spans[0]
    for span, is_marked in zip(spans, marked, strict=True):
        if is_marked:
            start = span.start if start is None else start
            end = span.end if end is None else max(end, span.end)
            continue
        if start is not None and end is not None:
            if span.end <= end:
                if span.kind == ring.SAVE:
                    result.append(span)
                continue
            result.append(sample._replace(kind=EVALUATION, start=start, end=end))
            start = end = None
        result.append(span)
    if start is not None and end is not None:
        result.append(sample._replace(kind=EVALUATION, start=start, end=end))
    return sorted(result, key=lambda event: (event.start, -event.end))
