"""Evaluation runs with gradients enabled, although nothing uses them.

Every forward pass then keeps its activations for a backward pass that never runs. This takes as much memory as training
with that batch, and some time.

A trial evaluates under `torch.no_grad()`, which does not keep activations either. Trials do not use inference mode: a
later backward pass cannot use tensors created in it, and the profiler cannot see whether the model keeps such tensors,
for example in a cache.

Wrong when: the evaluation needs gradients (saliency, adversarial examples, physics-informed losses, test-time
training).

Source: PyTorch Performance Tuning Guide, https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

from advisor.metrics import Metrics, between, settings
from advisor.models.effects import remove
from advisor.rules.base import Advice, Area, Confidence, Evidence, Intervention, Rule, Safety, evidence, measure, python
from advisor.units import share

RULE = Rule("Evaluate without gradients", Area.STALLS, Confidence.HEURISTIC)

# Share of the evaluation's time that is saved (assumption): keeping activations is cheap, running out of memory is not.
REMOVED = (0.0, 0.1, 0.3)

CODE = """\
model.eval()
with torch.inference_mode():
    for batch in validation_loader:
        ...
model.train()
"""


def when(m: Metrics) -> Evidence | None:
    """If evaluation runs with gradients enabled,"""
    if not m[settings.evaluation_grad]:
        return None
    return evidence(measure(m, between.evaluation_share, ">", 0.0), note="gradients were enabled in evaluation")


def then(m: Metrics, found: Evidence) -> Advice:
    """then evaluate under torch.inference_mode()."""
    return Advice(
        then=f"Evaluate under torch.inference_mode(): evaluation takes {share(m[between.evaluation_share])} of the run "
        "and keeps activations as if for training.",
        changes=(python(CODE),),
        basis="0, 10 or 30 % of the evaluation's time and about 90 % of its activations are saved.",
        effect=remove("evaluation", shares=REMOVED),
        intervention=Intervention(
            name="evaluation", settings={}, safety=Safety.EXACT, leaves="inference mode, under torch.no_grad()"
        ),
        risk="None, unless the evaluation itself calls backward. Tensors created in inference mode cannot be used in "
        "training later: if the model caches some, use torch.no_grad().",
    )
