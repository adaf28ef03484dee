"""One function or line of the program takes much of every step, outside its model, loader and optimizer.

Python stacks are sampled from outside the program. Each sample lies in one phase of the step, by its own frames, so the
time that no phase explains can be traced to a line: a normalization in Python, an environment, a metric of each step,
a plot, a log. What helps depends on the line; the advice names what to try for the library that it calls.

The gain is that of removing half of its time, or between none and all of it: what the line computes may be needed.

Wrong when: the line is the training itself: a loss or a model of functions instead of modules, or a simulator whose
speed is what it is.
"""

from __future__ import annotations

from advisor.metrics.base import Metrics, Threshold
from advisor.metrics.lines import Place, hot_place, hot_place_share, hot_place_share_low, is_own_work, stack_samples
from advisor.metrics.settings import on_cpu
from advisor.metrics.step import forward_fraction, other_fraction, step_time_mean
from advisor.models.effects import Triple
from advisor.models.state import Effect, Scenario, State
from advisor.rules.base import Advice, Area, Change, Confidence, Evidence, Measurement, Rule, Source
from advisor.units import share

MIN_SHARE = Threshold(0.20, "A loss outside the model, or reading it, takes less of a healthy step (assumption).")

MIN_LOW = Threshold(0.10, "Twice the gain worth acting on (5 %), so that half of it is worth having.")

MIN_OTHER = Threshold(0.15, "Share of the step that hooks measured outside all phases: stacks and hooks must agree.")

MIN_SAMPLES = Threshold(10, "With fewer, even the interval of the share is rough.")

REMOVED: Triple = (0.0, 0.5, 1.0)
"""Of the line's time (assumption)."""

TRY = {
    "": "Replace Python loops over samples by tensor operations on the whole batch, or do the work in the Dataset, "
    "where loader workers (num_workers) run it during the step.",
    "PIL": "Decode and transform images in the Dataset, with loader workers; torchvision.io decodes JPEG faster.",
    "cv2": "Move it into the Dataset, with loader workers, and call cv2.setNumThreads(0) there.",
    "pandas": "Convert the frame to tensors or NumPy arrays once, before the loop: indexing a frame costs more than "
    "indexing an array.",
    "numpy": "Use whole arrays instead of loops over elements, or convert to tensors once, before the loop.",
    "sklearn": "Compute it once per epoch from collected predictions, or with tensor operations.",
    "torchmetrics": "Update at each step, and compute at the end of the epoch.",
    "matplotlib": "Plot every N steps, or after the training from values that you keep.",
    "tensorboard": "Log every N steps.",
    "wandb": "Log every N steps.",
    "logging": "Log every N steps.",
    "json": "Parse once, before the loop, and keep the result as tensors or in memory-mapped files.",
    "gzip": "Unpack the files once, before the training, or read them in loader workers.",
    "re": "Compile patterns once, and clean the text once, before the training.",
    "copy": "Copy only what changes: deepcopy visits every object. For weights, use torch.no_grad() and copy_().",
    "torch": "If it is called for each sample, call it once for the batch.",
}
"""What to try, by the library or standard module that the line calls."""


def when(m: Metrics) -> Evidence | None:
    """If one function or line of the program's own, outside model, loader and optimizer, takes at least 20 % of the
    step,
    """
    place, count, other = m[hot_place], m[stack_samples], m[other_fraction]
    if count < m[MIN_SAMPLES] or other < m[MIN_OTHER] or not is_own_work(place, on_cpu=m[on_cpu]):
        return None
    if place.share < m[MIN_SHARE] or place.low < m[MIN_LOW]:
        return None
    return Evidence(
        (
            Measurement(hot_place_share, place.share, m[MIN_SHARE]),
            Measurement(hot_place_share_low, place.low, m[MIN_LOW]),
            Measurement(other_fraction, other, m[MIN_OTHER]),
            Measurement(stack_samples, count, m[MIN_SAMPLES]),
        ),
        note=f"{place.name} in {place.file}:{place.line}",
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then look at this line first."""
    place = m[hot_place]
    # Where no forward pass was seen, the line may be the model; on a GPU the host may only wait there.
    known = m.get(forward_fraction) is not None and m[on_cpu]
    return Advice(
        then=f"{share(place.share)} of a step is {place.name} in {place.where}. Make it faster, do it less often, "
        "or take it out of the loop.",
        changes=(Change(language="text", code=_try(place), file=place.file, line=place.line),),
        basis="Nothing, half or all of the line's time goes away: its share is that of the samples taken in it.",
        effect=_effect(min(place.share, m[other_fraction]) * m[step_time_mean]) if known else None,
        memory=0,
        risk="Depends on the change: compare the losses of some steps before and after.",
    )


def _try(place: Place) -> str:
    names = (place.library, *place.called.lower().replace(".", " ").split())
    return next((TRY[name] for name in names if name and name in TRY), TRY[""])


def _effect(seconds: float) -> Effect:
    def effect(state: State, scenario: Scenario) -> State:
        return state.without("other", seconds * scenario.of(REMOVED))

    return effect


RULE = Rule(
    title="Look at the line that takes the time",
    area=Area.STALLS,
    when=when,
    then=then,
    confidence=Confidence.HEURISTIC,
    difficulty=2,
    sources=(Source("py-spy: Sampling profiler for Python programs", "https://github.com/benfred/py-spy"),),
)
