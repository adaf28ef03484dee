from dataclasses import replace

from gpu_runs import ADAM, cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.base import Missing
from advisor.metrics.settings import is_trace, optimizer
from advisor.metrics.step import modeled_phases, optimizer_fraction
from advisor.metrics.traced import fused_update, trace
from advisor.models.state import State
from advisor.rules.base import Intervention, Safety
from profiler.schema import TraceFact

UNFUSED = replace(ADAM, fused=None, tensors=1200, parameters=633_600, device="cpu")
SGD = {"name": "SGD", "module": "torch.optim.sgd"}
LARGE = {"tensors": 12, "parameters": 25_178_112}


def cpu(share: float, **changes: object):
    return cpu_metrics({optimizer: replace(UNFUSED, **changes)}, phases={"optimizer": share})


BY_BYTES = {
    is_trace: True,
    trace: TraceFact(id=0, optimizer="AdamW", fused=False),
    optimizer_fraction: 0.3,
    modeled_phases: {"forward": 0.07, "optimizer": 0.03},
}


def traced(**changes: object):
    fact = TraceFact(id=0, optimizer="AdamW", fused=False)
    return given({is_trace: True, trace: replace(fact, **changes), optimizer_fraction: 0.3})


STATE = State(phases={"forward": 0.4, "optimizer": 0.6})


CASES = [
    Fires(
        "a loop over 1200 tensors on CPU",
        cpu(0.6),
        code=("torch.optim.AdamW(..., fused=True)",),
        then="1200 tensors, of 528 elements on average, instead of a loop",
        note="not fused",
        state=STATE,
        # besides the optimizer's 0.6, the passes lose 12 % of it or, as 25 % is too much, 30 % of their own 0.4
        removed=(0.4, 0.6 * (1 - 1 / 4.5) + 0.072, 0.6 * (1 - 1 / 7) + 0.12),
        fault=False,
        intervention=Intervention(name="fused_optimizer", settings={"name": "AdamW"}, safety=Safety.NUMERICS),
    ),
    Fires(
        "six layers of 2048 on CPU: several passes over 100 MB",
        cpu(0.6, **LARGE),
        then="instead of several",
        state=STATE,
        removed=(0.6 * (1 - 1 / 2.3), 0.6 * (1 - 1 / 3.4) + 0.072, 0.6 * (1 - 1 / 4.5) + 0.12),
    ),
    Fires(
        "tensors just small enough to count as small", cpu(0.6, tensors=2, parameters=32768), then="instead of a loop"
    ),
    Fires(
        "tensors just large enough to count as large", cpu(0.6, tensors=2, parameters=32770), then="instead of several"
    ),
    Fires(
        "a trace of AdamW without fused kernels",
        traced(),
        code=("torch.optim.AdamW(parameters, ..., fused=True)",),
        state=STATE,
        removed=(0.6 * (1 - 1 / 1.3), 0.3, 0.45),
        by_hand=True,
    ),
    Fires(
        "a trace whose update takes five times as long as a fused one",
        given({**BY_BYTES, fused_update: 0.006}),
        state=STATE,
        removed=(0.3, 0.6 * (1 - 1 / 3.5), 0.48),
    ),
    Fires(
        "a trace whose update takes less time than its bytes imply",
        given({**BY_BYTES, fused_update: 0.04}),
        state=STATE,
        removed=(0.6 * (1 - 1 / 1.3), 0.3, 0.45),
    ),
    DoesNotFire("a trace with fused kernels", traced(fused=True)),
    DoesNotFire("a trace in which no kernel of the update is known", traced(fused=None)),
    DoesNotFire("a trace of SGD, possibly without momentum", traced(optimizer="SGD")),
    Fires(
        "foreach on a GPU",
        gpu_metrics({optimizer: replace(ADAM, fused=False, foreach=True), optimizer_fraction: 0.3}),
        state=STATE,
        removed=(0.6 * (1 - 1 / 1.3), 0.3, 0.45),
    ),
    DoesNotFire("few tensors on a GPU", gpu_metrics({optimizer: replace(ADAM, fused=None, tensors=99)})),
    Fires("foreach=True was requested", cpu(0.6, foreach=True), code="instead of foreach=True"),
    Fires("just above the limit", cpu(0.051)),
    Fires("SGD over a hundred small tensors", cpu(0.6, **SGD, tensors=100), code="torch.optim.SGD("),
    DoesNotFire("SGD over 99 small tensors", cpu(0.6, **SGD, tensors=99)),
    DoesNotFire("SGD over large tensors: one pass already", cpu(0.6, **SGD, **LARGE)),
    DoesNotFire("SGD over 1200 large tensors", cpu(0.6, **SGD, tensors=1200, parameters=10**8)),
    Fires(
        "SGD with momentum over large tensors",
        cpu(0.6, **SGD, **LARGE, state_bytes=10**8),
        state=STATE,
        removed=(0.1, 0.6 * (1 - 1 / 1.7) + 0.072, 0.6 * (1 - 1 / 2.8) + 0.12),
    ),
    Fires(
        "SGD with momentum over small tensors",
        cpu(0.6, **SGD, tensors=20, parameters=41_600, state_bytes=166_400),
        state=STATE,
        removed=(0.6 * (1 - 1 / 2.3), 0.6 * (1 - 1 / 3.5) + 0.072, 0.6 * (1 - 1 / 4.8) + 0.12),
    ),
    DoesNotFire("just below the limit", cpu(0.049)),
    DoesNotFire("fused already", cpu(0.6, fused=True)),
    DoesNotFire("an optimizer without a fused kernel", cpu(0.6, name="RMSprop", module="torch.optim.rmsprop")),
    DoesNotFire("an Adam that is not torch's", cpu(0.6, module="their.optimizers")),
    DoesNotFire("complex or integer parameters", cpu(0.6, floating=False)),
    DoesNotFire("a device without fused kernels", cpu(0.6, device="meta")),
    NotMeasured(
        "the optimizer was not seen",
        cpu_metrics({optimizer: Missing("No optimizer", "Use one.")}, phases={"optimizer": 0.6}),
    ),
    NotMeasured(
        "optimizer time was not measured",
        cpu_metrics({optimizer: UNFUSED, optimizer_fraction: Missing("No", "Yes.")}, phases={}),
    ),
]
