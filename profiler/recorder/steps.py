"""Convert events to steps, for one process at a time and without side effects.

A step runs from the end of one optimizer update to the end of the next. If a program has several optimizers, a step
ends with the last of them before one steps again, unless they follow one another as stages of a training run. If
several threads train, each has its own steps. A program that calls `step()` sets its own boundaries.

Work between training batches (evaluation, checkpoints, starting an epoch) is carved out of the step in which it
occurs, and tags that step. The rest is partitioned into phases: every moment belongs to the innermost activity.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from profiler.agent import ring
from profiler.agent.ring import Event
from profiler.recorder.evaluation import EVALUATION, EvaluationJudge
from profiler.recorder.spans import closure, exclusive, in_order
from profiler.schema import TAG_CHECKPOINT, TAG_COMPILE, TAG_EPOCH_START, TAG_EVALUATION, TAG_FIRST, TAG_WINDOW, Step

# Kinds of host events that steps consist of.
_SPANS = frozenset((ring.FETCH, ring.ITER, ring.FORWARD, ring.BACKWARD, ring.OPTIMIZER, ring.SAVE, ring.GC))

# Tags that the agent sets.
_AGENT_TAGS = TAG_WINDOW | TAG_COMPILE

# Maximum events without a step: a program without optimizer steps or step() would keep its events forever.
MOST_OPEN = 200_000

# The same before the first step, where events matter less: a program that only predicts would hold 40 MB otherwise.
MOST_BEFORE = 20_000

# The same for a thread that does not train while another one does: the beginning of its first step, if that comes.
MOST_IDLE = 1_000


@dataclass
class _Training:
    """One thread's loop of updates; nearly all programs have one."""

    lane: int
    """Thread of its last update: a program may hand each step to another thread of a pool."""
    boundary: int | None = None
    """End of the previous step; None before the first."""
    updates: dict[int, Event] = field(default_factory=dict)
    """The update of each optimizer since the boundary, in order."""
    round: set[int] = field(default_factory=set)
    """Optimizers that took part in the previous step."""
    fetches: bool = False
    """Whether a DataLoader is in use."""
    passes: bool = False
    """Whether the previous step called the model without a loader for something other than training."""
    ahead: int = 0
    """Batches fetched and not yet trained on; accelerate and Lightning fetch one ahead."""


@dataclass
class Segmenter:
    """A converter of one training process's events to steps.

    Feed it the events; those of one thread must be in the order of their ends. `origin` is the run clock's zero on the
    events' clock, ns.
    """

    pid: int
    origin: int
    index: int = 0
    """Index of the next step."""
    unmeasured: set[str] = field(default_factory=set)
    """Fields of Step that are not, or no longer, measured."""
    unbounded: bool = False
    """Whether no boundary was seen for so long that events had to be dropped."""
    evaluation: EvaluationJudge = field(default_factory=EvaluationJudge)

    def __post_init__(self) -> None:
        self._open: dict[int, list[Event]] = {0: []}
        """Events that belong to no step yet, by lane."""
        self._dropped = 0
        """Number of events that were dropped because their step did not end."""
        self._trainings: list[_Training] = []
        self._by_optimizer: dict[int, _Training] = {}
        self._own_boundaries = False
        self._first_fetch: set[int] = set()
        """Loaders whose next fetch is the first of an epoch."""

    def feed(self, events: Iterable[Event]) -> list[Step]:
        """Return the steps that these events complete; other kinds of events are ignored."""
        steps: list[Step] = []
        current_lane = 0
        open_spans = self._open[current_lane]
        for event in events:
            kind = event.kind
            if kind not in _SPANS and kind != ring.STEP:
                continue
            if event.lane != current_lane:
                current_lane = event.lane
                open_spans = self._open.setdefault(current_lane, [])
            if kind == ring.STEP:
                self._own_boundaries = True
                training = self._training(current_lane)
                steps.append(self._close(training, event))
            else:
                if kind == ring.OPTIMIZER and not event.b and not self._own_boundaries:
                    steps += self._updated(event)
                open_spans.append(event)
        for lane, spans in self._open.items():
            self._bound(lane, spans)
        return steps

    def _updated(self, event: Event) -> list[Step]:
        """Return the steps that this update shows to have ended."""
        training = self._by_optimizer.get(event.id)
        if training is None:
            training = self._by_optimizer[event.id] = self._training(event.lane)
        steps = self._close_round(training, event.id) if event.id in training.updates else []
        training.updates[event.id] = event
        training.lane = event.lane
        return steps

    def _close_round(self, training: _Training, again: int) -> list[Step]:
        """Return the step since the boundary, now that an optimizer steps again.

        Returns two steps if this optimizer, or several with it, replaced the previous step's optimizers: the old ones
        have made their last update, and the new ones their first.
        """
        updates, previous_count = training.updates, len(training.round)
        order = [*updates]
        rounds = [order]
        if previous_count and set(order[:previous_count]) == training.round and again not in training.round:
            rounds = [order[:previous_count], order[previous_count:]]
        steps = [self._close(training, updates[ids[-1]]) for ids in rounds]
        training.round = set(rounds[-1])
        updates.clear()
        return steps

    def _training(self, lane: int) -> _Training:
        for training in self._trainings:
            if training.lane == lane:
                return training
        self._trainings.append(_Training(lane))
        return self._trainings[-1]

    def _bound(self, lane: int, spans: list[Event]) -> None:
        idle = bool(self._trainings) and all(training.lane != lane for training in self._trainings)
        half = len(spans) // 2
        if len(spans) > (MOST_IDLE if idle else MOST_OPEN if self._trainings else MOST_BEFORE):
            del spans[:half]
            self._dropped += 0 if idle else half
            self.unbounded |= self._dropped >= MOST_OPEN // 2

    def flush(self) -> list[Step]:
        """Return the last step, whose end is known only at the end of the program."""
        steps = []
        if not self._own_boundaries:
            for training in self._trainings:
                steps += [self._close(training, update) for update in [*training.updates.values()][-1:]]
        # The remaining spans belong to no step, but may show an evaluation at the very end.
        for lane in {training.lane for training in self._trainings} or {0}:
            self._carve(in_order(self._open[lane]), again=False)
        self._trainings.clear()
        self._by_optimizer.clear()
        for spans in self._open.values():
            spans.clear()
        return steps

    @property
    def pending(self) -> bool:
        """Return whether there are events that belong to no step yet."""
        return any(self._open.values())

    # ---- one step ----

    def _close(self, training: _Training, boundary: Event) -> Step:
        end, tags = boundary.end, boundary.a & _AGENT_TAGS
        begin = training.boundary
        open_spans = self._open[boundary.lane]
        spans = [event for event in open_spans if event.end <= end]
        open_spans[:] = [event for event in open_spans if event.end > end]
        if begin is None:
            tags |= TAG_FIRST
            begin = min((event.start for event in spans), default=end)
        else:
            spans = [event for event in spans if event.start >= begin]
        training.boundary = end
        step = self._anatomy(training, spans, begin, end, tags)
        self.index += 1
        unmeasured: dict[str, Any] = dict.fromkeys(self.unmeasured)
        return replace(step, **unmeasured) if unmeasured else step

    def _carve(self, spans: list[Event], *, again: bool) -> tuple[list[Event], bool]:
        if self._own_boundaries and not any(span.kind in (ring.BACKWARD, ring.OPTIMIZER) for span in spans):
            return spans, False  # no training by torch: the forward passes are the work itself
        return self.evaluation.carve(spans, again)

    def _anatomy(self, training: _Training, spans: list[Event], begin: int, end: int, tags: int) -> Step:
        # If no spans overlap, all the time of each span is its own.
        are_apart = all(previous.end <= span.start for previous, span in pairwise(spans))
        if are_apart and self.evaluation.is_plain(spans):
            training.passes = False
            own_times = [span.end - span.start for span in spans]
        else:
            spans, training.passes = self._carve(in_order(spans), again=training.passes)
            own_times = exclusive(spans)
            for position, span in enumerate(spans):
                if span.kind == ring.OPTIMIZER:
                    own_times[position] -= closure(spans, position)
        wait = overhead = epoch = fetch_host = 0
        batches = empty_fetches = depth = backward = backward_end = depth_count = forward_count = 0
        sums: dict[int, int] = {}
        for span, own_time in zip(spans, own_times, strict=True):
            kind = span.kind
            if kind == ring.FETCH:
                training.fetches = True
                ready_batches = span.a
                is_first = span.id in self._first_fetch and ready_batches != -1
                self._first_fetch.discard(span.id)
                if is_first or span.b:
                    epoch += own_time
                else:
                    wait, overhead = (wait + own_time, overhead) if ready_batches <= 0 else (wait, overhead + own_time)
                    fetch_host += own_time
                if not span.b:
                    batches += 1
                    empty_fetches += ready_batches <= 0
                    if ready_batches >= 0:
                        depth_count += 1
                        depth += ready_batches
            elif kind == ring.ITER:
                epoch += own_time
                tags |= TAG_EPOCH_START
                self._first_fetch.add(span.id)
            else:
                sums[kind] = sums.get(kind, 0) + own_time
                forward_count += kind == ring.FORWARD
                if kind == ring.OPTIMIZER:
                    tags |= span.a & _AGENT_TAGS
                elif kind == ring.BACKWARD and span.start >= backward_end:  # activation checkpointing runs nested ones
                    backward += span.a == 0
                    backward_end = span.end
        evaluation, save, gc = sums.get(EVALUATION, 0), sums.get(ring.SAVE, 0), sums.get(ring.GC, 0)
        tags |= (TAG_EVALUATION if evaluation else 0) | (TAG_CHECKPOINT if save else 0)
        tags |= TAG_EPOCH_START if epoch else 0
        duration = end - begin - evaluation - save - epoch
        # None if not seen in a step that updated the model, e.g. because torch.compile captured it as a whole.
        default = None if ring.OPTIMIZER in sums else 0
        forwards, backwards = sums.get(ring.FORWARD, default), sums.get(ring.BACKWARD, default)
        updates: int | None = sums.get(ring.OPTIMIZER, 0)
        if any(span.kind == ring.OPTIMIZER and span.c for span in spans):
            updates = None  # a CUDA graph was replayed as a whole
        available_batches = batches + training.ahead
        training.ahead = min(1, max(0, available_batches - backward))
        known_time = wait + overhead + (forwards or 0) + (backwards or 0) + (updates or 0) + gc
        return Step(
            pid=self.pid,
            index=self.index,
            start=(begin - self.origin) / 1e9,
            duration=duration / 1e9,
            tags=tags,
            micro_steps=float(max(1, min(backward, available_batches) if available_batches else backward)),
            batches=float(batches),
            forwards=float(forward_count) if forward_count else None,
            data_wait=wait / 1e9 if training.fetches else None,
            loader_overhead=overhead / 1e9 if training.fetches else None,
            forward=None if forwards is None else forwards / 1e9,
            backward=None if backwards is None else backwards / 1e9,
            optimizer=None if updates is None else updates / 1e9,
            gc=gc / 1e9,
            other=max(0, duration - known_time) / 1e9,
            evaluation=evaluation / 1e9,
            checkpoint_save=save / 1e9,
            epoch_start=epoch / 1e9,
            fetch_host=fetch_host / 1e9,
            fetches_empty=float(empty_fetches),
            queue_depth=depth / depth_count if depth_count else None,
        )
