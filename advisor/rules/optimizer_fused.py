"""The optimizer is not fused: it passes over memory repeatedly, or updates many tensors one by one.

With small tensors, the loop takes the time, not the arithmetic: every tensor needs a few kernel launches or, on a CPU,
function calls. With large tensors, each of Adam's roughly ten operations reads and writes all tensors again. A fused
optimizer updates everything in one pass over memory. On a CPU, torch's default is the loop, even if a fused kernel
exists. On CUDA it is `foreach`, which is better but still moves every tensor through memory several times. SGD without
momentum is always a single pass; it is slow only with many tensors.

Wrong when: the optimizer is a subclass that relies on the unfused code path, is created with `differentiable`, or has
parameters on a device that the fused kernel does not support.

Source: PyTorch, torch.optim: fused implementations, https://docs.pytorch.org/docs/stable/optim.html
Source: PyTorch Performance Tuning Guide, https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

from advisor.metrics import Metrics, Threshold, settings, step, traced
from advisor.models.effects import COMPUTE, Triple, divide, in_turn, shorter
from advisor.models.state import Scenario, State
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Area, Confidence, Evidence, Intervention, Rule, Safety, evidence, measure, python
from advisor.units import digits, seconds
from profiler.schema import OptimizerFact

RULE = Rule("Use the fused optimizer", Area.KERNELS, Confidence.EMPIRICAL)

MIN_FRACTION = Threshold(0.05, "A smaller share cannot gain 3 %, even if two thirds of it are saved.")

MIN_TENSORS = Threshold(
    100, "For CUDA, and for SGD without momentum: with fewer tensors, the loop over them is not the bottleneck."
)

SMALL = Threshold(
    16384,
    "Mean number of elements per tensor; up to this size, a pass over a tensor on a CPU takes no longer than the call.",
)

# Optimizers of torch.optim that have fused kernels on CPU and CUDA since torch 2.4, the oldest supported version.
FUSED = ("Adam", "AdamW", "SGD")
ADAMS = FUSED[:2]  # a trace does not show whether SGD has momentum; without, it is a single pass anyway
DEVICES = ("cpu", "cuda")

# Speed-up of the optimizer. On CPU: measured with 10 to 1200 tensors of 32^2 to 2048^2 elements, on one and two
# threads. With small tensors, Adam became 3.7 to 4.2 times as fast, SGD with momentum 2.9 to 4.7 times, SGD without
# momentum 1.4 to 5 times. With large tensors, Adam became 2.3 to 4.2 times as fast, SGD with momentum 1.3 to 2.8 times,
# SGD without momentum no faster. In a training loop, Adam over 1200 small tensors became 5.3 times as fast.
ADAM_SMALL: Triple = (3.0, 4.5, 7.0)
ADAM_LARGE: Triple = (2.3, 3.4, 4.5)
MOMENTUM_SMALL: Triple = (2.3, 3.5, 4.8)
MOMENTUM_LARGE: Triple = (1.2, 1.7, 2.8)
PLAIN_SMALL: Triple = (1.3, 2.5, 5.0)

# Time that forward and backward save in addition, as a share of the optimizer's time on a CPU, because less of their
# data is evicted from the caches. Measured in that loop: 8 ms of 60, a fifth of the two passes; so the saving is
# limited to a share of them (assumption).
EVICTED: Triple = (0.0, 0.12, 0.25)
MOST_EVICTED = 0.3

# Speed-up over foreach on CUDA; practitioners report the low end (assumption).
ON_CUDA: Triple = (1.3, 2.0, 4.0)
ON_CUDA_BASIS = "The optimizer becomes {}, {} or {} times as fast; the rest of the step stays the same.".format(
    *map(digits, ON_CUDA)
)
# Share of the speed-up that a fused kernel's bytes allow (assumption): kernels of small tensors do not fill the GPU.
OF_BYTES: Triple = (0.4, 0.7, 1.0)
MOST_SPEEDUP = 20.0
RISK = "Low: the same update, rounded in another order."


def when(m: Metrics) -> Evidence | None:
    """If the optimizer takes at least 5 % of the step, could be fused but is not, and makes several passes over memory
    on a CPU (Adam, SGD with momentum) or updates at least 100 tensors (in a trace: if Adam or AdamW runs no fused
    kernel),
    """
    part = measure(m, step.optimizer_fraction, ">=", MIN_FRACTION)
    if m.get(settings.is_trace):
        seen = m[traced.trace]
        slow = seen.fused is False and seen.optimizer in ADAMS
        return evidence(part, note=f"{seen.optimizer} is not fused") if slow else None
    fact = m[settings.optimizer]
    if fact.fused or not _fusible(fact) or _speedup(m, fact) is None:
        return None
    note = f"{fact.name} updates {fact.tensors} tensors of {_mean(fact):,.0f} elements on average, not fused"
    return evidence(part, note=note)


def then(m: Metrics, found: Evidence) -> Advice:
    """then create the optimizer with fused=True."""
    if m.get(settings.is_trace):
        return _advice_for_trace(m)
    fact = m[settings.optimizer]
    instead = " instead of foreach=True" if fact.foreach else ""
    speedup = _speedup(m, fact)
    assert speedup is not None, "the rule has fired"
    low, expected, high = (digits(each) for each in speedup)
    on_cpu, faster = fact.device == "cpu", divide("optimizer", by=speedup)
    return Advice(
        then=f"Build {fact.name} with fused=True{instead}: one pass over its {fact.tensors} tensors, of "
        f"{_mean(fact):,.0f} elements on average, instead of {'a loop' if _is_small(m, fact) else 'several'}.",
        changes=spelling(m).fused(),
        basis=f"The optimizer's part of the step is divided by {low}, {expected} or {high}, as measured for "
        f"{fact.name} and tensors of such sizes. In addition, better cache use in the forward and backward passes "
        "saves 0, 12 or 25 % of that part."
        if on_cpu
        else ON_CUDA_BASIS,
        effect=in_turn(_fewer_misses, faster) if on_cpu else faster,
        memory=None if on_cpu else 0,
        intervention=Intervention(name="fused_optimizer", settings={"name": fact.name}, safety=Safety.NUMERICS),
        risk=RISK,
    )


def _advice_for_trace(m: Metrics) -> Advice:
    name, speedup, basis = m[traced.trace].optimizer, ON_CUDA, ON_CUDA_BASIS
    phases: dict[str, float] = m.get(step.modeled_phases) or {}
    if (fused := m.get(traced.fused_update)) and phases.get("optimizer", 0.0) > fused:
        most = min(MOST_SPEEDUP, phases["optimizer"] / fused)
        speedup = (max(1.0, OF_BYTES[0] * most), max(1.0, OF_BYTES[1] * most), most)
        basis = (
            f"A fused kernel moves its bytes in {seconds(fused)} at 80 % of the memory bandwidth: 40, 70 or 100 % of "
            "that speed-up."
        )
    return Advice(
        then=f"Build {name} with fused=True: one pass over all parameters instead of several.",
        changes=(python(f"optimizer = torch.optim.{name}(parameters, ..., fused=True)\n"),),
        basis=basis,
        effect=divide("optimizer", by=speedup),
        risk=RISK,
    )


def _fusible(fact: OptimizerFact) -> bool:
    kind = (fact.device or "").partition(":")[0]
    return fact.name in FUSED and fact.module.startswith("torch.optim") and fact.floating and kind in DEVICES


def _speedup(m: Metrics, fact: OptimizerFact) -> Triple | None:
    """Return the speed-up (low, expected, high); None if the fused kernel is no faster."""
    small, many = _is_small(m, fact), fact.tensors >= m[MIN_TENSORS]
    if fact.device != "cpu":
        return ON_CUDA if many else None
    if fact.name != "SGD":
        return ADAM_SMALL if small else ADAM_LARGE
    if fact.state_bytes:  # momentum
        return MOMENTUM_SMALL if small else MOMENTUM_LARGE
    return PLAIN_SMALL if small and many else None


def _fewer_misses(state: State, scenario: Scenario) -> State:
    passes = sum(state.phases.get(phase, 0.0) for phase in COMPUTE)
    gone = scenario.of(EVICTED) * state.phases.get("optimizer", 0.0)
    return shorter(state, min(gone, MOST_EVICTED * passes), COMPUTE)


def _is_small(m: Metrics, fact: OptimizerFact) -> bool:
    return _mean(fact) <= m[SMALL]


def _mean(fact: OptimizerFact) -> float:
    return fact.parameters / max(1, fact.tensors)
