from dataclasses import replace

from gpu_runs import ADAM, cpu_metrics, gpu_metrics
from harness import Blind, Fires, Silent

from advisor.metrics.base import Missing
from advisor.metrics.settings import optimizer
from advisor.metrics.step import optimizer_fraction
from advisor.models.state import State
from advisor.rules.base import Intervention, Safety

UNFUSED = replace(ADAM, fused=None, tensors=1200, device="cpu")


def cpu(share: float, **changes: object):
    return cpu_metrics({optimizer: replace(UNFUSED, **changes)}, phases={"optimizer": share})


CASES = [
    Fires(
        "a loop over 1200 tensors on CPU",
        cpu(0.6),
        code=("torch.optim.AdamW(..., fused=True)",),
        then="1200 tensors",
        note="not fused",
        state=State(phases={"forward": 0.4, "optimizer": 0.6}),
        removed=(0.6 * (1 - 1 / 1.3), 0.3, 0.45),
        fault=False,
        intervention=Intervention(name="fused_optimizer", settings={"name": "AdamW"}, safety=Safety.NUMERICS),
    ),
    Fires(
        "foreach on a GPU", gpu_metrics({optimizer: replace(ADAM, fused=False, foreach=True), optimizer_fraction: 0.3})
    ),
    Fires("said to be foreach", cpu(0.6, foreach=True), code="in place of foreach=True"),
    Fires("just above the limit", cpu(0.051)),
    Fires("a hundred tensors", cpu(0.6, tensors=100)),
    Fires("SGD", cpu(0.6, name="SGD", module="torch.optim.sgd"), code="torch.optim.SGD("),
    Silent("just below the limit", cpu(0.049)),
    Silent("too few tensors", cpu(0.6, tensors=99)),
    Silent("fused already", cpu(0.6, fused=True)),
    Silent("an optimizer without a fused kernel", cpu(0.6, name="RMSprop", module="torch.optim.rmsprop")),
    Silent("somebody else's Adam", cpu(0.6, module="their.optimizers")),
    Silent("complex or integer parameters", cpu(0.6, floating=False)),
    Silent("a device without fused kernels", cpu(0.6, device="meta")),
    Blind(
        "the optimizer was not seen",
        cpu_metrics({optimizer: Missing("No optimizer", "Use one.")}, phases={"optimizer": 0.6}),
    ),
    Blind(
        "its time was not measured",
        cpu_metrics({optimizer: UNFUSED, optimizer_fraction: Missing("No", "Yes.")}, phases={}),
    ),
]
