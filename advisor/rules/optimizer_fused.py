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
    fraction = measure(m, step.optimizer_fraction, ">=", MIN_FRACTION)
    if m.get(settings.is_trace):
        trace = m[traced.trace]
        is_slow = trace.fused is False and trace.optimizer in ADAMS
        return evidence(fraction, note=f"{trace.optimizer} is not fused") if is_slow else None
    optimizer = m[settings.optimizer]
    if optimizer.fused or not _fusible(optimizer) or _speedup(m, optimizer) is None:
        return None
    note = (
        f"{optimizer.name} updates {optimizer.tensors} tensors of {_mean(optimizer):,.0f} elements on average, "
        "not fused"
    )
    return evidence(fraction, note=note)


def then(m: Metrics, found: Evidence) -> Advice:
    """then create the optimizer with fused=True."""
    if m.get(settings.is_trace):
        return _advice_for_trace(m)
    optimizer = m[settings.optimizer]
    note = " instead of foreach=True" if optimizer.foreach else ""
    speedup = _speedup(m, optimizer)
    assert speedup is not None, "the rule has fired"
    low, expected, high = (digits(factor) for factor in speedup)
    on_cpu, effect = optimizer.device == "cpu", divide("optimizer", by=speedup)
    return Advice(
        then=f"Build {optimizer.name} with fused=True{note}: one pass over its {optimizer.tensors} tensors, of "
        f"{_mean(optimizer):,.0f} elements on average, instead of "
        f"{'a loop' if _is_small(m, optimizer) else 'several'}.",
        changes=spelling(m).fused(),
        basis=f"The optimizer's part of the step is divided by {low}, {expected} or {high}, as measured for "
        f"{optimizer.name} and tensors of such sizes. In addition, better cache use in the forward and backward passes "
        "saves 0, 12 or 25 % of that part."
        if on_cpu
        else ON_CUDA_BASIS,
        effect=in_turn(_fewer_misses, effect) if on_cpu else effect,
        memory=None if on_cpu else 0,
        intervention=Intervention(name="fused_optimizer", settings={"name": optimizer.name}, safety=Safety.NUMERICS),
        risk=RISK,
    )


def _advice_for_trace(m: Metrics) -> Advice:
    name, speedup, basis = m[traced.trace].optimizer, ON_CUDA, ON_CUDA_BASIS
    phases: dict[str, float] = m.get(step.modeled_phases) or {}
    if (fused_seconds := m.get(traced.fused_update)) and phases.get("optimizer", 0.0) > fused_seconds:
        speedup_limit = min(MOST_SPEEDUP, phases["optimizer"] / fused_seconds)
        speedup = (max(1.0, OF_BYTES[0] * speedup_limit), max(1.0, OF_BYTES[1] * speedup_limit), speedup_limit)
        basis = (
            f"A fused kernel moves its bytes in {seconds(fused_seconds)} at 80 % of the memory bandwidth: 40, 70 or "
            "100 % of that speed-up."
        )
    return Advice(
        then=f"Build {name} with fused=True: one pass over all parameters instead of several.",
        changes=(python(f"optimizer = torch.optim.{name}(parameters, ..., fused=True)\n"),),
        basis=basis,
        effect=divide("optimizer", by=speedup),
        risk=RISK,
    )


def _fusible(fact: OptimizerFact) -> bool:
    device_type = (fact.device or "").partition(":")[0]
    return fact.name in FUSED and fact.module.startswith("torch.optim") and fact.floating and device_type in DEVICES


def _speedup(m: Metrics, fact: OptimizerFact) -> Triple | None:
    """Return the speed-up (low, expected, high); None if the fused kernel is no faster."""
    is_small, has_many = _is_small(m, fact), fact.tensors >= m[MIN_TENSORS]
    if fact.device != "cpu":
        return ON_CUDA if has_many else None
    if fact.name != "SGD":
        return ADAM_SMALL if is_small else ADAM_LARGE
    if fact.state_bytes:  # momentum
        return MOMENTUM_SMALL if is_small else MOMENTUM_LARGE
    return PLAIN_SMALL if is_small and has_many else None


def _fewer_misses(state: State, scenario: Scenario) -> State:
    pass_seconds = sum(state.phases.get(phase, 0.0) for phase in COMPUTE)
    saved_seconds = scenario.of(EVICTED) * state.phases.get("optimizer", 0.0)
    return shorter(state, min(saved_seconds, MOST_EVICTED * pass_seconds), COMPUTE)


def _is_small(m: Metrics, fact: OptimizerFact) -> bool:
    return _mean(fact) <= m[SMALL]


def _mean(fact: OptimizerFact) -> float:
    return fact.parameters / max(1, fact.tensors)
