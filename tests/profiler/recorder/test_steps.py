import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.agent import ring
from profiler.recorder import steps as module
from profiler.recorder.evaluation import EvaluationJudge
from profiler.recorder.steps import Segmenter
from profiler.schema import (
    BETWEEN,
    PHASES,
    TAG_CHECKPOINT,
    TAG_COMPILE,
    TAG_EPOCH_START,
    TAG_EVALUATION,
    TAG_FIRST,
    TAG_WINDOW,
)

MS = 1_000_000
ORIGIN = 5_000 * MS

TRAINING, EVALUATION = 1, 2
"""Numbers of loaders."""
MODEL, TEACHER = 1, 2
"""Numbers of root modules."""


class Loop:
    """A training loop on a simulated clock in ms: each call advances the clock and records what happened."""

    def __init__(self, lane=0):
        self.now = 0
        self.lane = lane
        self.events = []

    def _add(self, kind, begin, id=0, a=0, b=0, c=0):
        sequence = len(self.events) + 1
        times = ORIGIN + begin * MS, ORIGIN + self.now * MS
        self.events.append(ring.Event(*times, a, b, c, 0, kind, self.lane, id, sequence))

    def idle(self, ms):
        self.now += ms

    def span(self, kind, ms, **fields):
        begin = self.now
        if callable(ms):
            ms()
        else:
            self.now += ms
        self._add(kind, begin, **fields)

    def fetch(self, ms, loader=TRAINING, ready=-1, ended=False):
        self.span(ring.FETCH, ms, id=loader, a=ready, b=int(ended))

    def iter(self, ms, loader=TRAINING, workers=True):
        self.span(ring.ITER, ms, id=loader, a=int(workers))

    def forward(self, ms, root=MODEL, training=True, grad=True):
        self.span(ring.FORWARD, ms, id=root, a=int(training), b=int(grad))

    def backward(self, ms, code=0):
        self.span(ring.BACKWARD, ms, a=code)

    def optimizer(self, ms, id=1, tags=0, nested=False):
        self.span(ring.OPTIMIZER, ms, id=id, a=tags, b=int(nested))

    def own_step(self, tags=0):
        self.span(ring.STEP, 0, a=tags)

    def step(self, fetch=1, forward=2, backward=4, optimizer=3, **how):
        """Take a step of 10 ms."""
        self.fetch(fetch, **how)
        self.forward(forward)
        self.backward(backward)
        self.optimizer(optimizer)

    def evaluate(self, batches=2, training=False, grad=False, loader=EVALUATION):
        """Evaluate: 10 ms per batch, 1 ms for the iterator and 1 ms for its end."""
        if loader is not None:
            self.iter(1, loader)
        for _ in range(batches):
            if loader is not None:
                self.fetch(3, loader, ready=0)
            self.forward(6, training=training, grad=grad)
            self.idle(1)
        if loader is not None:
            self.fetch(1, loader, ready=0, ended=True)

    def steps(self, **how):
        self.segmenter = Segmenter(pid=7, origin=ORIGIN, **how)
        return self.segmenter.feed(self.events) + self.segmenter.flush()


@pytest.fixture
def loop():
    return Loop()


def ms(value):
    return None if value is None else round(value * 1000, 6)


def phases(step):
    """Return the phases that are not zero, in ms."""
    return {name: ms(getattr(step, name)) for name in (*PHASES, *BETWEEN) if getattr(step, name)}


# ---- one optimizer ----


def test_a_step_runs_from_the_end_of_one_update_to_the_end_of_the_next(loop):
    loop.step()
    loop.idle(5)
    loop.step()
    first, second = loop.steps()
    assert (first.pid, first.index, second.index) == (7, 0, 1)
    assert (first.tags, second.tags) == (TAG_FIRST, 0)
    assert (ms(first.start), ms(first.duration)) == (0, 10)
    assert (ms(second.start), ms(second.duration)) == (10, 15)
    assert phases(second) == {"data_wait": 1, "forward": 2, "backward": 4, "optimizer": 3, "other": 5}
    assert (second.batches, second.micro_steps, ms(second.fetch_host)) == (1, 1, 1)


def test_step_is_reported_once_its_end_is_known(loop):
    """Another optimizer might belong to the same step."""
    loop.step()
    segmenter = Segmenter(7, ORIGIN)
    assert segmenter.feed(loop.events) == []
    assert len(segmenter.flush()) == 1
    assert segmenter.flush() == []


def test_phases_not_measurable_on_the_host_are_none(loop):
    loop.step()
    (step,) = loop.steps()
    assert (step.h2d, step.communication, step.sync) == (None, None, None)


def test_step_has_the_tags_of_the_update_that_ends_it(loop):
    loop.step()
    loop.fetch(1)
    loop.optimizer(1, tags=TAG_WINDOW)
    loop.fetch(1)
    loop.optimizer(1, tags=TAG_COMPILE | 1 << 40)  # tags that are not the agent's come from a damaged file
    loop.fetch(1)
    loop.optimizer(1)
    assert [step.tags for step in loop.steps()] == [TAG_FIRST, TAG_WINDOW, TAG_COMPILE, 0]


# ---- several optimizers ----


def test_two_optimizers_in_turn_make_one_step(loop):
    for _ in range(3):
        loop.fetch(1)
        for number in (1, 2):
            loop.forward(2, root=number)
            loop.backward(3)
            loop.optimizer(4, id=number)
    steps = loop.steps()
    assert [ms(step.duration) for step in steps] == [19, 19, 19]
    assert phases(steps[1]) == {"data_wait": 1, "forward": 4, "backward": 6, "optimizer": 8}
    assert [step.micro_steps for step in steps] == [1, 1, 1]


def test_step_has_the_tags_of_all_its_optimizers(loop):
    for tags in (0, TAG_WINDOW, 0):
        loop.optimizer(1, id=1, tags=tags)
        loop.optimizer(1, id=2)
    assert [step.tags for step in loop.steps()] == [TAG_FIRST, TAG_WINDOW, 0]


def test_a_critic_that_steps_more_often_has_steps_of_its_own(loop):
    for _ in range(2):
        for number in (1, 1, 1, 2):
            loop.backward(1)
            loop.optimizer(1, id=number)
    assert [ms(step.duration) for step in loop.steps()] == [2, 2, 4, 2, 2, 4]


def test_stages_that_follow_one_another_have_steps_of_their_own(loop):
    """Pretraining and fine-tuning, folds or trials: each has its own optimizers."""
    for stage, optimizers in enumerate(([1], [2], [3, 4], [5])):
        for _ in range(3):
            loop.fetch(1, loader=stage)
            for number in optimizers:
                loop.backward(2)
                loop.optimizer(3, id=number, tags=TAG_COMPILE if number == 4 else 0)
    steps = loop.steps()
    assert [ms(step.duration) for step in steps] == [6] * 6 + [11] * 3 + [6] * 3
    assert [bool(step.tags & TAG_COMPILE) for step in steps] == [False] * 6 + [True] * 3 + [False] * 3
    assert loop.segmenter.evaluation.trained == {0, 1, 2, 3}


def test_an_optimizer_that_joins_later_belongs_to_the_same_steps(loop):
    """For example a discriminator that is only trained once the generator is good enough."""
    for number in range(6):
        loop.fetch(1)
        loop.optimizer(3, id=1)
        if number >= 3:
            loop.optimizer(5, id=2)
    assert [ms(step.duration) for step in loop.steps()] == [4, 4, 4, 9, 9, 9]


@pytest.mark.parametrize("times", [1, 2])
def test_nested_optimizer_step_does_not_end_a_step(loop, times):
    for _ in range(3):
        loop.backward(2)

        def inside():
            loop.idle(1)
            for _ in range(times):
                loop.optimizer(3, id=2, nested=True)

        loop.optimizer(inside, id=1)
    steps = loop.steps()
    assert [ms(step.duration) for step in steps] == [3 + 3 * times] * 3
    assert phases(steps[1]) == {"backward": 2, "optimizer": 1 + 3 * times}


def test_closure_passes_are_separated_from_the_optimizer(loop):
    """The closure's loss is not part of the update; the time between two of its passes, as in a line search, is."""

    def closure():
        loop.idle(1)
        for _ in range(2):
            loop.forward(5)
            loop.idle(2)
            loop.backward(7)
            loop.idle(3)

    loop.step()
    loop.fetch(2)
    loop.optimizer(closure)
    step = loop.steps()[1]
    assert phases(step) == {"data_wait": 2, "forward": 10, "backward": 14, "optimizer": 6, "other": 5}
    assert ms(step.duration) == 37
    assert step.micro_steps == 1  # one batch, however many passes


# ---- micro-steps ----


def test_gradient_accumulation_makes_several_micro_steps(loop):
    for _ in range(2):
        for _ in range(4):
            loop.fetch(1)
            loop.forward(2)
            loop.backward(3)
        loop.optimizer(4)
    step = loop.steps()[1]
    assert (step.micro_steps, step.batches, step.forwards) == (4, 4, 4)
    assert phases(step) == {"data_wait": 4, "forward": 8, "backward": 12, "optimizer": 4}


def test_micro_steps_without_a_loader_are_outermost_backward_passes(loop):
    def checkpointed():
        loop.idle(1)
        loop.backward(2)  # recomputed and differentiated inside the outer one
        loop.backward(2)

    loop.backward(checkpointed)
    loop.backward(3)
    loop.backward(1, code=1)  # autograd.grad, for example a penalty
    loop.optimizer(1)
    (step,) = loop.steps()
    assert step.micro_steps == 2
    assert step.batches == 0
    assert phases(step) == {"backward": 9, "optimizer": 1}


# ---- the loader ----


def test_fetch_is_data_wait_if_no_batch_is_ready_else_overhead(loop):
    loop.step()
    for ready in (0, 3, 1):
        loop.fetch(2, ready=ready)
        loop.backward(1)
    loop.optimizer(1)
    step = loop.steps()[1]
    assert phases(step) == {"data_wait": 2, "loader_overhead": 4, "backward": 3, "optimizer": 1}
    assert (step.batches, step.fetches_empty, ms(step.fetch_host)) == (3, 1, 6)
    assert step.queue_depth == pytest.approx(4 / 3)


@pytest.mark.parametrize("ready", [-1, -2])
def test_fetch_without_a_known_queue_is_data_wait_without_depth(loop, ready):
    """Without workers, or where the system does not report it."""
    loop.step(ready=ready)
    (step,) = loop.steps()
    assert (ms(step.data_wait), step.fetches_empty, step.queue_depth) == (1, 1, None)


def test_worker_start_and_first_fetch_of_an_epoch_are_excluded(loop):
    loop.step(ready=2)
    loop.fetch(1, ready=0, ended=True)
    loop.iter(20)
    loop.step(fetch=30, ready=0)
    loop.step(ready=0)
    _, first, second = loop.steps()
    assert first.tags == TAG_EPOCH_START
    assert ms(first.epoch_start) == 1 + 20 + 30
    assert ms(first.duration) == 9
    assert phases(second) == {"data_wait": 1, "forward": 2, "backward": 4, "optimizer": 3}
    assert second.tags == 0


def test_first_fetch_without_workers_is_data_wait(loop):
    loop.iter(1, workers=False)
    loop.step(fetch=5, ready=-1)
    (step,) = loop.steps()
    assert (ms(step.data_wait), ms(step.epoch_start)) == (5, 1)


def test_a_loader_that_reads_from_another_loader_fetches_one_batch(loop):
    def chained():
        loop.iter(1, loader=EVALUATION)
        loop.fetch(4, loader=EVALUATION)
        loop.idle(1)

    for _ in range(2):
        loop.step(fetch=chained)
    step = loop.steps()[1]
    assert (ms(step.data_wait), step.batches, step.tags) == (6, 1, 0)
    assert loop.segmenter.evaluation.trained == {TRAINING}


def test_fetch_that_ends_an_epoch_is_not_a_batch(loop):
    loop.step()
    loop.fetch(4, ended=True)
    loop.step()
    step = loop.steps()[1]
    assert (step.batches, ms(step.epoch_start), step.tags) == (1, 4, TAG_EPOCH_START)
    assert ms(step.duration) == 10


# ---- evaluation ----


def test_evaluation_with_its_own_loader_is_excluded_whole(loop):
    loop.step()
    loop.idle(2)
    loop.evaluate(batches=3)
    loop.idle(4)
    loop.step()
    loop.step()
    _, step, after = loop.steps()
    assert step.tags == TAG_EVALUATION
    assert ms(step.evaluation) == 1 + 3 * 10 + 1
    assert phases(step) == {
        "data_wait": 1,
        "forward": 2,
        "backward": 4,
        "optimizer": 3,
        "other": 6,
        "evaluation": 32,
    }
    assert (ms(step.duration), step.batches) == (16, 1)
    assert after.tags == 0
    assert loop.segmenter.evaluation.trained == {TRAINING}
    assert loop.segmenter.evaluation.evaluated == {EVALUATION}
    assert loop.segmenter.evaluation.grad is False


def test_evaluation_with_gradients_enabled_is_reported(loop):
    loop.step()
    loop.evaluate(grad=True)
    loop.step()
    loop.evaluate(grad=False)
    loop.step()
    steps = loop.steps()
    assert [bool(step.tags & TAG_EVALUATION) for step in steps] == [False, True, True]
    assert loop.segmenter.evaluation.grad is True


def test_evaluation_in_training_mode_is_recognized(loop):
    """The program forgot model.eval(), but no backward pass follows."""
    loop.step()
    loop.evaluate(training=True, grad=True)
    loop.step()
    assert ms(loop.steps()[1].evaluation) == 22
    assert loop.segmenter.evaluation.grad is True


def test_evaluation_without_a_loader_is_recognized_by_its_model(loop):
    for _ in range(2):
        loop.forward(2)
        loop.backward(4)
        loop.optimizer(3)
    loop.evaluate(batches=2, loader=None)
    loop.forward(2)
    loop.backward(4)
    loop.optimizer(3)
    step = loop.steps()[2]
    assert ms(step.evaluation) == 6 + 1 + 6  # the time between its two batches is part of it
    assert phases(step) == {"forward": 2, "backward": 4, "optimizer": 3, "other": 1, "evaluation": 13}
    assert loop.segmenter.evaluation.grad is False


def test_frozen_teacher_in_a_training_batch_is_not_evaluation(loop):
    for _ in range(2):
        loop.fetch(1)
        loop.forward(5, root=TEACHER, training=False, grad=False)
        loop.forward(2)
        loop.backward(4)
        loop.optimizer(3)
    steps = loop.steps()
    assert phases(steps[1]) == {"data_wait": 1, "forward": 7, "backward": 4, "optimizer": 3}
    assert [step.tags for step in steps] == [TAG_FIRST, 0]
    assert loop.segmenter.evaluation.grad is None


def test_a_sanity_check_before_the_first_step_is_evaluation(loop):
    loop.evaluate()
    loop.step()
    (step,) = loop.steps()
    assert step.tags == TAG_FIRST | TAG_EVALUATION
    assert ms(step.evaluation) == 22
    assert phases(step) == {"data_wait": 1, "forward": 2, "backward": 4, "optimizer": 3, "evaluation": 22}


def test_evaluation_after_last_step_only_updates_what_is_known(loop):
    loop.step()
    loop.evaluate(grad=True)
    (step,) = loop.steps()
    assert ms(step.duration) == 10
    assert loop.segmenter.evaluation.evaluated == {EVALUATION}
    assert loop.segmenter.evaluation.grad is True


@pytest.mark.parametrize("training", [True, False])
def test_batch_cut_off_before_its_backward_pass_is_not_evaluation(loop, training):
    """The program was killed, possibly while it fine-tuned in evaluation mode."""
    loop.step()
    loop.fetch(1)
    loop.forward(2, training=training)
    loop.steps()
    assert loop.segmenter.evaluation.grad is None
    assert loop.segmenter.evaluation.evaluated == set()


def test_single_batch_of_another_loader_is_not_evaluation(loop):
    """Semi-supervised training; `continue` on an unusable batch looks the same."""
    loop.step()
    for _ in range(3):
        loop.fetch(1, loader=7)
        loop.forward(2)
        loop.step()
    steps = loop.steps()
    assert not any(step.tags & TAG_EVALUATION for step in steps)
    assert loop.segmenter.evaluation.grad is None
    assert loop.segmenter.evaluation.evaluated == set()


def test_several_forward_passes_of_one_loader_in_training_mode_are_an_evaluation(loop):
    """This evaluation forgot both `eval()` and `no_grad()`."""
    loop.step()
    for _ in range(3):
        loop.fetch(1, loader=7)
        loop.forward(2)
    loop.step()
    _, step = loop.steps()
    assert ms(step.evaluation) == 9
    assert loop.segmenter.evaluation.grad is True
    assert loop.segmenter.evaluation.evaluated == {7}


def test_prefetching_one_batch_does_not_look_like_evaluation(loop):
    """Accelerate's loaders do that."""
    loop.fetch(1)
    for _ in range(3):
        loop.step()
    loop.fetch(1, ended=True)
    loop.forward(2)
    loop.backward(4)
    loop.optimizer(3)
    steps = loop.steps()
    assert [step.batches for step in steps] == [2, 1, 1, 0]
    assert not any(step.tags & TAG_EVALUATION for step in steps)


def test_prefetched_batch_is_a_micro_step_of_the_step_that_uses_it(loop):
    for _ in range(2):  # epochs of 8 batches and two steps
        loop.fetch(1)
        for number in range(8):
            loop.fetch(1, ended=number == 7)
            loop.forward(2)
            loop.backward(3)
            if number % 4 == 3:
                loop.optimizer(4)
    steps = loop.steps()
    assert [step.batches for step in steps] == [5, 3, 5, 3]
    assert [step.micro_steps for step in steps] == [4, 4, 4, 4]


def test_evaluation_that_prefetches_is_excluded_whole(loop):
    loop.step()
    loop.fetch(1, loader=EVALUATION)
    for number in range(3):
        loop.fetch(1, loader=EVALUATION, ended=number == 2)
        loop.forward(2, training=False, grad=False)
    loop.step()
    _, step = loop.steps()
    assert (ms(step.evaluation), step.batches) == (10, 1)
    assert ms(step.duration) == 10


# ---- loops of other shapes ----


def test_zipped_loaders_make_one_step_and_both_count_as_training(loop):
    for _ in range(3):
        loop.fetch(1, loader=5)
        loop.span(ring.GC, 1)
        loop.fetch(2, loader=6)
        loop.forward(2)
        loop.backward(4)
        loop.optimizer(3)
    steps = loop.steps()
    assert [(step.batches, step.micro_steps) for step in steps] == [(2, 1)] * 3
    assert phases(steps[1]) == {"data_wait": 3, "gc": 1, "forward": 2, "backward": 4, "optimizer": 3}
    assert loop.segmenter.evaluation.trained == {5, 6}
    assert loop.segmenter.evaluation.evaluated == set()


def test_evaluation_between_batch_and_forward_pass_is_excluded(loop):
    loop.step()
    loop.fetch(1)
    loop.evaluate(batches=2)
    loop.forward(2)
    loop.backward(4)
    loop.optimizer(3)
    _, step = loop.steps()
    assert phases(step) == {"data_wait": 1, "forward": 2, "backward": 4, "optimizer": 3, "evaluation": 22}
    assert loop.segmenter.evaluation.trained == {TRAINING}
    assert loop.segmenter.evaluation.evaluated == {EVALUATION}


def test_rollouts_in_every_step_are_not_evaluation(loop):
    """Reinforcement learning: the model that is trained plays, in evaluation mode and without gradients."""
    for _ in range(4):
        for _ in range(3):
            loop.forward(2, training=False, grad=False)
            loop.idle(1)
        loop.forward(2)
        loop.backward(4)
        loop.optimizer(3)
    steps = loop.steps()
    assert [phases(step) for step in steps] == [{"forward": 8, "backward": 4, "optimizer": 3, "other": 3}] * 4
    assert [step.tags for step in steps] == [TAG_FIRST, 0, 0, 0]
    assert loop.segmenter.evaluation.grad is None


@pytest.mark.parametrize("fetch", [True, False])
def test_evaluation_with_gradients_in_every_step_is_recognized(loop, fetch):
    """Full-batch training that validates after each update, under eval() but not no_grad()."""
    for _ in range(3):
        if fetch:
            loop.fetch(1)
        loop.forward(2)
        loop.backward(4)
        loop.optimizer(3)
        loop.forward(5, training=False)
    steps = loop.steps()
    assert [ms(step.evaluation) for step in steps] == [0, 5, 5]
    assert {ms(step.forward) for step in steps} == {2}
    assert loop.segmenter.evaluation.grad is True


@pytest.mark.parametrize("code", ["loss", "attack"])
def test_eval_mode_pass_followed_by_a_backward_pass_is_training(loop, code):
    for _ in range(3):
        loop.forward(5, training=False)
        if code == "attack":  # adversarial examples: gradients of the input
            loop.backward(4)
            loop.forward(2)
        loop.backward(4)
        loop.optimizer(3)
    assert [step.tags for step in loop.steps()] == [TAG_FIRST, 0, 0]
    assert loop.segmenter.evaluation.grad is None


def test_rollouts_before_every_replayed_batch_are_not_evaluation(loop):
    """The replay buffer is read by a DataLoader."""
    for _ in range(4):
        loop.forward(6, training=False, grad=False)
        loop.step()
    steps = loop.steps()
    assert [step.tags for step in steps[1:]] == [0, 0, 0]
    assert phases(steps[2]) == {"data_wait": 1, "forward": 8, "backward": 4, "optimizer": 3}


def test_rollouts_between_groups_of_updates_count_as_evaluation(loop):
    for _ in range(3):
        for _ in range(5):
            loop.forward(2, training=False, grad=False)
        for _ in range(3):
            loop.forward(2)
            loop.backward(4)
            loop.optimizer(3)
    steps = loop.steps()
    assert [ms(step.evaluation) for step in steps] == [0, 0, 0, 10, 0, 0, 10, 0, 0]
    assert [ms(step.duration) for step in steps[1:]] == [9] * 8


def test_evaluation_with_its_own_loader_in_every_step_is_recognized(loop):
    """Epochs of one batch."""
    for _ in range(3):
        loop.step()
        loop.evaluate()
    assert [ms(step.evaluation) for step in loop.steps()] == [0, 22, 22]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("failures", [1, 3])
def test_failed_batches_are_not_evaluation_and_count_for_the_step(loop, training, failures):
    """An out-of-memory error in the forward pass, caught; or a loss that is not finite. Fine-tuning may use evaluation
    mode."""
    loop.step()
    loop.step()
    for _ in range(failures):
        loop.fetch(1)
        loop.forward(2, training=training)
        loop.idle(5)
    loop.step()
    loop.step()
    _, _, step, after = loop.steps()
    assert (step.batches, ms(step.duration), step.tags) == (1 + failures, 10 + 8 * failures, 0)
    assert (ms(after.duration), after.tags) == (10, 0)
    assert loop.segmenter.evaluation.grad is None
    assert loop.segmenter.evaluation.evaluated == set()


@pytest.mark.parametrize("training", [True, False])
def test_full_pass_over_training_loader_without_backward_is_evaluation(loop, training):
    """For example the accuracy on the training set."""
    loop.step()
    loop.step()
    loop.evaluate(batches=3, training=training, grad=True, loader=TRAINING)
    loop.step()
    step = loop.steps()[2]
    assert step.tags & TAG_EVALUATION
    assert ms(step.evaluation) >= 3 * 10 - 1
    assert loop.segmenter.evaluation.grad is True


class Walked(list):
    """A list that counts how often it is iterated over or copied."""

    times = 0

    def __iter__(self):
        self.times += 1
        return super().__iter__()

    def __getitem__(self, at):
        self.times += isinstance(at, slice)
        return super().__getitem__(at)


def test_evaluation_on_training_loader_is_judged_in_constant_walks():
    def walks(batches):
        loop, judge = Loop(), EvaluationJudge()
        judge.trained.add(TRAINING)
        loop.iter(1)
        for _ in range(batches):
            loop.fetch(1)
            loop.forward(1, training=False, grad=False)
        loop.fetch(1, ended=True)
        spans = Walked(loop.events)
        judge.carve(spans, again=False)
        return spans.times

    assert walks(100) == walks(10)


def test_steps_of_ten_seconds_are_exact(loop):
    for _ in range(3):
        loop.step(1_000, 2_000, 4_000, 3_000)
    steps = loop.steps()
    assert [step.duration for step in steps] == [10.0] * 3
    assert phases(steps[1]) == {"data_wait": 1_000, "forward": 2_000, "backward": 4_000, "optimizer": 3_000}


# ---- several threads ----


def merged(*loops):
    """Return the loops' events in the order of a ring: by their end."""
    return sorted((event for loop in loops for event in loop.events), key=lambda event: event.end)


def test_two_threads_that_train_have_steps_of_their_own():
    first, second = Loop(lane=3), Loop(lane=4)
    for _ in range(6):
        first.step()
    second.now = 5
    for _ in range(3):
        second.fetch(2, loader=9)
        second.forward(4, root=9)
        second.backward(8)
        second.optimizer(6, id=9)
    first.events = merged(first, second)
    steps = first.steps()
    assert [step.index for step in steps] == list(range(9))
    short = [step for step in steps if ms(step.duration) == 10]
    long = [step for step in steps if ms(step.duration) == 20]
    assert (len(short), len(long)) == (6, 3)
    assert [step.tags for step in short] == [TAG_FIRST, 0, 0, 0, 0, 0]
    assert [step.tags for step in long] == [TAG_FIRST, 0, 0]
    assert [phases(step) for step in short] == [{"data_wait": 1, "forward": 2, "backward": 4, "optimizer": 3}] * 6
    assert [phases(step) for step in long] == [{"data_wait": 2, "forward": 4, "backward": 8, "optimizer": 6}] * 3
    assert first.segmenter.evaluation.trained == {TRAINING, 9}


def test_steps_in_threads_of_a_pool_follow_one_another():
    """Each step runs in whichever thread is free; the optimizer is the same."""
    loop = Loop()
    for lane in (3, 4, 4, 3, 5):
        loop.lane = lane
        loop.step()
        loop.idle(2)
    steps = loop.steps()
    assert [ms(step.start) for step in steps] == [0, 10, 22, 34, 46]
    assert [ms(step.duration) for step in steps] == [10, 12, 12, 12, 12]
    assert [step.tags for step in steps] == [TAG_FIRST, 0, 0, 0, 0]
    assert all(step.forward and step.backward for step in steps)


def test_events_of_a_thread_that_does_not_train_are_dropped(loop, monkeypatch):
    monkeypatch.setattr(module, "MOST_IDLE", 20)
    other = Loop(lane=9)
    for _ in range(100):
        other.fetch(1)
        loop.step()
    segmenter = Segmenter(7, ORIGIN)
    for _ in range(10):
        segmenter.feed(merged(loop, other))
        assert len(segmenter._open[9]) <= 20 + 100
    assert not segmenter.unbounded


# ---- nested passes ----


def test_nested_model_call_is_part_of_the_outer_forward_pass(loop):
    """The inner root is also called by itself: a critic inside a GAN's wrapper, a backbone that is also evaluated."""

    def outer():
        loop.idle(1)
        loop.forward(2, root=TEACHER, training=False, grad=False)
        loop.idle(1)
        loop.forward(3)

    for _ in range(2):
        loop.fetch(1)
        loop.forward(outer, root=9)
        loop.backward(4)
        loop.optimizer(3)
    steps = loop.steps()
    assert [step.tags for step in steps] == [TAG_FIRST, 0]
    assert phases(steps[1]) == {"data_wait": 1, "forward": 7, "backward": 4, "optimizer": 3}


def test_forward_passes_nested_in_evaluation_are_not_separate(loop):
    def outer():
        loop.forward(3, grad=True)  # under enable_grad; the outer pass decides

    loop.step()
    for _ in range(2):
        loop.fetch(1, EVALUATION)
        loop.span(ring.FORWARD, outer, id=9, a=0, b=0)
    loop.step()
    assert ms(loop.steps()[1].evaluation) == 8
    assert loop.segmenter.evaluation.grad is False


def test_forward_pass_recomputed_in_backward_counts_as_backward(loop):
    """Activation checkpointing."""

    def again():
        loop.idle(1)
        loop.forward(2)
        loop.idle(1)
        loop.forward(2, grad=False)

    for _ in range(2):
        loop.fetch(1)
        loop.forward(5)
        loop.backward(again)
        loop.optimizer(3)
    steps = loop.steps()
    assert [step.tags for step in steps] == [TAG_FIRST, 0]
    assert phases(steps[1]) == {"data_wait": 1, "forward": 5, "backward": 6, "optimizer": 3}


def test_forward_pass_recomputed_in_autograd_thread_counts_once(loop):
    """On a GPU the backward pass has its own thread, where reentrant checkpointing calls backward()."""
    autograd = Loop(lane=9)
    for _ in range(3):
        loop.fetch(1)
        loop.forward(5)
        autograd.now = loop.now + 1
        loop.backward(8)
        autograd.forward(2, grad=False)
        autograd.backward(3)
        loop.optimizer(3)
    loop.events = sorted(loop.events + autograd.events, key=lambda event: event.end)
    steps = loop.steps()
    assert [phases(step) for step in steps] == [{"data_wait": 1, "forward": 5, "backward": 8, "optimizer": 3}] * 3
    assert [step.tags for step in steps] == [TAG_FIRST, 0, 0]
    assert [step.micro_steps for step in steps] == [1, 1, 1]


def test_gradient_computed_in_a_forward_pass_counts_as_backward(loop):
    """Forces as gradients of an energy: autograd.grad() inside the module."""

    def differentiates():
        loop.idle(2)
        loop.backward(3, code=1)
        loop.idle(1)

    loop.step()
    loop.fetch(1)
    loop.forward(differentiates)
    loop.backward(4)
    loop.optimizer(3)
    step = loop.steps()[1]
    assert phases(step) == {"data_wait": 1, "forward": 3, "backward": 7, "optimizer": 3}
    assert step.micro_steps == 1


def test_passes_in_a_closure_are_counted_as_forward_and_backward(loop):
    def closure():
        loop.forward(lambda: loop.forward(5), root=9)
        loop.backward(lambda: loop.forward(7))

    loop.step()
    loop.optimizer(closure)
    loop.optimizer(1)
    assert phases(loop.steps()[1]) == {"forward": 5, "backward": 7}


# ---- checkpoints, garbage collection, threads ----


def test_checkpoint_saving_is_separated_from_the_step(loop):
    loop.step()
    loop.span(ring.SAVE, 50)
    loop.idle(1)
    loop.step()
    step = loop.steps()[1]
    assert (ms(step.checkpoint_save), ms(step.duration), step.tags) == (50, 11, TAG_CHECKPOINT)


def test_saving_inside_an_evaluation_counts_as_checkpoint(loop):
    loop.step()
    loop.evaluate(batches=1)
    loop.step()
    loop.iter(1, EVALUATION)
    loop.fetch(3, EVALUATION, ready=0)
    loop.forward(6, training=False, grad=False)
    loop.span(ring.SAVE, 50)
    loop.fetch(3, EVALUATION, ready=0)
    loop.forward(6, training=False, grad=False)
    loop.step()
    step = loop.steps()[2]
    assert (ms(step.evaluation), ms(step.checkpoint_save), ms(step.duration)) == (19, 50, 10)
    assert step.tags == TAG_EVALUATION | TAG_CHECKPOINT


def test_garbage_collection_is_subtracted_from_what_it_interrupts(loop):
    def interrupted():
        loop.idle(2)
        loop.span(ring.GC, 3, a=2)
        loop.idle(1)

    loop.step()
    loop.fetch(1)
    loop.backward(interrupted)
    loop.span(ring.GC, 2)
    loop.optimizer(1)
    assert phases(loop.steps()[1]) == {"data_wait": 1, "backward": 3, "gc": 5, "optimizer": 1}


def test_events_of_other_threads_do_not_count_for_the_step(loop):
    other = Loop(lane=9)
    for _ in range(3):
        other.fetch(1)
        other.forward(1, grad=False)
        other.span(ring.SAVE, 2)
        other.span(ring.GC, 1)
        loop.step()
    loop.events = sorted(loop.events + other.events, key=lambda event: event.end)
    steps = loop.steps()
    assert [phases(step) for step in steps] == [{"data_wait": 1, "forward": 2, "backward": 4, "optimizer": 3}] * 3
    assert loop.segmenter.evaluation.evaluated == set()


def test_training_outside_the_main_thread_is_recognized():
    loop = Loop(lane=4)
    loop.step()
    loop.step()
    assert phases(loop.steps()[1]) == {"data_wait": 1, "forward": 2, "backward": 4, "optimizer": 3}


# ---- the program's own boundaries ----


def test_own_boundaries_take_precedence_over_optimizers(loop):
    for tags in (0, TAG_WINDOW, 0):
        for _ in range(2):
            loop.fetch(1)
            loop.backward(2)
            loop.optimizer(3)
        loop.idle(2)
        loop.own_step(tags)
    steps = loop.steps()
    # The first optimizer stepped twice before the first of the program's own boundaries.
    assert [ms(step.duration) for step in steps] == [6, 8, 14, 14]
    assert [step.tags for step in steps] == [TAG_FIRST, 0, TAG_WINDOW, 0]
    assert phases(steps[3]) == {"data_wait": 2, "backward": 4, "optimizer": 6, "other": 2}
    assert steps[3].micro_steps == 2


def test_own_boundaries_have_the_tags_of_preceding_updates(loop):
    for tags in (0, TAG_COMPILE, 0):
        loop.optimizer(1, tags=tags)
        loop.own_step()
    assert [step.tags for step in loop.steps()] == [TAG_FIRST, TAG_COMPILE, 0]


def test_own_boundaries_without_torch_optimizers(loop):
    """Forward passes without a backward pass then count as the step's work."""
    for _ in range(3):
        loop.fetch(1)
        loop.forward(5, training=False, grad=False)
        loop.own_step()
    steps = loop.steps()
    assert [phases(step) for step in steps] == [{"data_wait": 1, "forward": 5}] * 3
    assert [step.tags for step in steps] == [TAG_FIRST, 0, 0]


def test_events_after_last_own_boundary_are_not_a_step(loop):
    loop.step()
    loop.own_step()
    loop.step()
    assert len(loop.steps()) == 1


# ---- without an end ----


def test_memory_is_bounded_and_flagged_without_any_boundary(loop, monkeypatch):
    monkeypatch.setattr(module, "MOST_OPEN", 400)
    monkeypatch.setattr(module, "MOST_BEFORE", 100)
    segmenter = Segmenter(7, ORIGIN)
    for _ in range(50):
        loop.events.clear()
        for _ in range(10):
            loop.fetch(1)
        assert segmenter.feed(loop.events) == []
        assert len(segmenter._open[0]) <= 110
    assert segmenter.unbounded
    assert segmenter.flush() == []


def test_steps_begin_once_a_late_boundary_comes(loop, monkeypatch):
    monkeypatch.setattr(module, "MOST_BEFORE", 100)
    segmenter = Segmenter(7, ORIGIN)
    for _ in range(300):
        loop.forward(1, grad=False)
    segmenter.feed(loop.events)
    loop.events.clear()
    loop.step()
    loop.step()
    steps = segmenter.feed(loop.events) + segmenter.flush()
    assert len(steps) == 2
    assert not segmenter.unbounded
    assert phases(steps[1]) == {"data_wait": 1, "forward": 2, "backward": 4, "optimizer": 3}


def test_no_events_give_no_steps():
    segmenter = Segmenter(7, ORIGIN)
    assert segmenter.feed([]) == []
    assert segmenter.flush() == []


# ---- any loop ----

LEAVES = st.sampled_from(
    [
        ("fetch", {"loader": TRAINING, "ready": -1}),
        ("fetch", {"loader": TRAINING, "ready": 0}),
        ("fetch", {"loader": TRAINING, "ready": 3}),
        ("fetch", {"loader": TRAINING, "ready": 0, "ended": True}),
        ("fetch", {"loader": EVALUATION, "ready": 0}),
        ("fetch", {"loader": EVALUATION, "ready": 1, "ended": True}),
        ("iter", {"loader": TRAINING}),
        ("iter", {"loader": EVALUATION}),
        ("forward", {}),
        ("forward", {"training": False, "grad": False}),
        ("forward", {"training": False, "grad": True}),
        ("forward", {"root": TEACHER, "training": False, "grad": False}),
        ("backward", {}),
        ("backward", {"code": 1}),
        ("optimizer", {"id": 1}),
        ("optimizer", {"id": 2}),
        ("own_step", {}),
        ("span", {"kind": ring.SAVE}),
        ("span", {"kind": ring.GC}),
        ("span", {"kind": ring.REGION}),
    ]
)
TREES = st.recursive(
    st.tuples(LEAVES, st.integers(0, 9), st.just(())),
    lambda inner: st.tuples(LEAVES, st.integers(0, 9), st.lists(inner, max_size=3)),
    max_leaves=8,
)


def play(loop, tree, outer=()):
    (name, fields), ms, inside = tree
    fields = dict(fields)

    def body():
        for each in inside:
            play(loop, each, (*outer, name))
            loop.idle(ms)

    if name == "own_step":
        if not outer:  # inside another span it would be a boundary in the middle of that span
            loop.own_step()
        return
    if name == "optimizer":
        fields["nested"] = "optimizer" in outer
        if outer and not fields["nested"]:
            return
    kind = fields.pop("kind", None)
    getattr(loop, name)(*([] if kind is None else [kind]), body if inside else ms, **fields)


@settings(deadline=None, max_examples=150)
@given(st.lists(TREES, min_size=1, max_size=40), st.data())
def test_phases_partition_steps_of_any_loop_in_any_chunking(trees, data):
    loop = Loop()
    for tree in trees:
        play(loop, tree)
    steps = loop.steps()
    assert [step.index for step in steps] == list(range(len(steps)))
    for step in steps:
        parts = [getattr(step, name) for name in PHASES if getattr(step, name) is not None]
        between = [getattr(step, name) for name in BETWEEN]
        assert min(parts + between) >= 0
        assert sum(parts) == pytest.approx(step.duration, abs=1e-9)
        assert step.micro_steps >= 1
    for before, after in itertools.pairwise(steps):
        wall = before.duration + before.evaluation + before.checkpoint_save + before.epoch_start
        assert before.start + wall == pytest.approx(after.start, abs=1e-9)

    cuts = sorted(data.draw(st.lists(st.integers(0, len(loop.events)), max_size=5)))
    other = Segmenter(7, ORIGIN)
    chunked = []
    for begin, end in itertools.pairwise([0, *cuts, len(loop.events)]):
        chunked += other.feed(loop.events[begin:end])
    assert chunked + other.flush() == steps
