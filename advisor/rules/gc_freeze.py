"""Python's garbage collector runs often enough to slow down the steps.

It starts whenever enough new objects exist, and a full collection visits every object of the program: the modules, the
optimizer, the data set's index. Reference counts free almost everything without it. With several ranks, it starts at a
different step on each, and all of them wait each time.

Wrong when: the program calls `gc.collect()` itself (then call it less often), or creates reference cycles that hold
tensors: memory then grows until the next collection.

Source: Python: gc.freeze, https://docs.python.org/3/library/gc.html#gc.freeze
"""

from advisor.metrics import Metrics, Threshold, step
from advisor.models.effects import PARTLY, remove
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, evidence, measure, python
from advisor.units import share

RULE = Rule("Collect garbage at chosen steps", Area.STALLS, Confidence.PHASE_REMOVAL)

MIN_SHARE = Threshold(0.03, "A smaller share of the step is within its noise.")

CODE = """\
import gc

gc.collect()
gc.freeze()  # once, after model, optimizer and loaders exist: they are not visited again
gc.disable()
for step, batch in enumerate(loader):
    train(batch)
    if step % 1000 == 0:
        gc.collect(1)  # at the same step on every rank; watch the memory of a few thousand steps
"""


def when(m: Metrics) -> Evidence | None:
    """If Python's garbage collector takes at least 3 % of the step,"""
    return evidence(measure(m, step.gc_fraction, ">=", MIN_SHARE))


def then(m: Metrics, found: Evidence) -> Advice:
    """then freeze what exists before training, and collect at chosen steps."""
    return Advice(
        then="Freeze the objects that exist before training, and collect garbage every thousand steps: automatic "
        f"collection takes {share(m[step.gc_fraction])} of the step.",
        changes=(python(CODE),),
        basis="50, 80 or 100 % of the collector's time is saved.",
        effect=remove("gc", shares=PARTLY),
        memory=0,
        risk="Low: objects in reference cycles live until the next collection.",
    )
