"""The optimizer updates many tensors one after the other.

Every small tensor costs a handful of kernel launches or, on CPU, of calls: the loop, not the arithmetic, takes the
time. A fused optimizer updates all of them in few passes over memory. On CPU the default is the loop even where a fused
kernel exists; on CUDA it is `foreach`, which is better but still moves every tensor through memory several times.

Wrong when: the optimizer is a subclass that relies on the unfused code path, is made `differentiable`, or its
parameters are spread over kinds of device that the fused kernel does not serve.
"""

from __future__ import annotations

from advisor.metrics.base import Metrics, Threshold
from advisor.metrics.settings import optimizer
from advisor.metrics.step import optimizer_fraction
from advisor.models.state import Scenario, State
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Confidence, Evidence, Fact, Intervention, Rule, Safety, Source, Tier
from profiler.schema import OptimizerFact

MIN_FRACTION = Threshold(0.05, "Less than that cannot bring 3 % even if two thirds of it go.")

MIN_TENSORS = Threshold(100, "With fewer tensors the loop over them is not what costs.")

# Those of torch.optim with fused kernels on CPU and CUDA since torch 2.4, the oldest we support.
FUSED = ("Adam", "AdamW", "SGD")
DEVICES = ("cpu", "cuda")

# The optimizer's time is divided by this. Measured on CPU: a whole step of 1200 tensors under AdamW went 2.9 times as
# fast; on CUDA, against foreach, practitioners report the low end.
SPEEDUP = (1.3, 2.0, 4.0)


def when(m: Metrics) -> Evidence | None:
    """If the optimizer takes at least a twentieth of the step, updates a hundred tensors or more, and could be fused
    but is not,
    """
    share = m[optimizer_fraction]
    fact = m[optimizer]
    if share < m[MIN_FRACTION] or fact.fused or fact.tensors < m[MIN_TENSORS] or not _fusible(fact):
        return None
    note = f"{fact.name} updates {fact.tensors} tensors, not fused"
    return Evidence((Fact(optimizer_fraction, share, m[MIN_FRACTION]),), note)


def then(m: Metrics, found: Evidence) -> Advice:
    """then build the optimizer with fused=True."""
    fact = m[optimizer]
    instead = " in place of foreach=True" if fact.foreach else ""
    return Advice(
        then=f"Build {fact.name} with fused=True{instead}: one pass over its {fact.tensors} tensors instead of a loop.",
        changes=spelling(m).fused(),
        basis="The optimizer's part of the step is divided by 1.3, 2 or 4; the rest stays.",
        effect=_effect,
        memory=0 if fact.device != "cpu" else None,
        intervention=Intervention(name="fused_optimizer", settings={"name": fact.name}, safety=Safety.NUMERICS),
        risk="Low: the same update, rounded in another order.",
    )


def _fusible(fact: OptimizerFact) -> bool:
    kind = (fact.device or "").partition(":")[0]
    return fact.name in FUSED and fact.module.startswith("torch.optim") and fact.floating and kind in DEVICES


def _effect(state: State, scenario: Scenario) -> State:
    return state.scaled("optimizer", 1 / scenario.of(SPEEDUP))


RULE = Rule(
    title="Use the fused optimizer",
    tier=Tier.KERNELS,
    when=when,
    then=then,
    confidence=Confidence.EMPIRICAL,
    difficulty=1,
    sources=(
        Source("PyTorch, torch.optim: fused implementations", "https://docs.pytorch.org/docs/stable/optim.html"),
        Source(
            "PyTorch Performance Tuning Guide", "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
        ),
    ),
)
