"""`torch.compile` keeps recompiling during the training.

A compiled function is valid for the shapes, dtypes and Python values it was compiled for. If one of them changes, torch
compiles the function again, which takes seconds. After 8 variants of one function, torch gives up and runs it
uncompiled.

Wrong when: there are only a few distinct shapes and all of them appear early. Recompilation then stops by itself; it
dominates only a short recording. Set TORCH_LOGS=recompiles to see which guard failed.

Source: PyTorch: torch.compile, recompilation, https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html
"""

from advisor.metrics import Metrics, Threshold, between, settings
from advisor.models.effects import remove_run, up_to
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, bash, evidence, measure, python
from advisor.units import share

RULE = Rule(
    "Stop torch.compile from recompiling",
    Area.KERNELS,
    Confidence.PHASE_REMOVAL,
    difficulty=2,
    supersedes=("launch-bound-graphs", "cudnn-benchmark"),
)

MIN_RECOMPILES = Threshold(
    7,
    "Together with the first step, 8 variants of one function, after which torch gives up (torch._dynamo.config, "
    "recompile_limit).",
)

CODE = """\
import torch

model = torch.compile(model, dynamic=True)  # shapes as symbols from the start
# or, for one dimension of an input that varies: torch._dynamo.mark_dynamic(inputs, 1)
"""

LOG = "TORCH_LOGS=recompiles python train.py  # changes nothing else: logs the guard that fails each time\n"


def when(m: Metrics) -> Evidence | None:
    """If torch.compile created graphs in 7 or more steps after the first,"""
    if not m[settings.flags].compile:
        return None
    recompiles = measure(m, between.recompiles, ">=", MIN_RECOMPILES)
    return evidence(recompiles, measure(m, between.recompile_share)) if recompiles.holds else None


def then(m: Metrics, found: Evidence) -> Advice:
    """then mark the dimensions that vary as dynamic, or limit the shapes to a few sizes."""
    return Advice(
        then=f"Stop torch.compile from recompiling: {m[between.recompiles]} steps after the first one recompiled, "
        f"which took {share(m[between.recompile_share])} of the run after its first steps. After 8 variants of a "
        "function torch runs it uncompiled. Mark the varying dimension as dynamic, pad to a few lengths, or turn a "
        "number that varies into a tensor.",
        changes=(python(CODE), bash(LOG)),
        basis="50, 80 or 100 % of the extra time of steps that recompile after the first ten is saved. Code that "
        "torch gave up on and ran uncompiled would gain as well; that is not counted.",
        effect=remove_run(up_to(min(1.0, m[between.recompile_share]))),
        risk="Low: kernels for symbolic shapes may be slightly slower than those for one shape.",
    )
