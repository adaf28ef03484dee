"""Collect changes that may make an out-of-memory program fit.

They come from the rules' advice, and from the program itself where rules have no data. Rules need the GPU memory at the
peak of a step, which is missing if a run failed in its first step or was on a CPU. Equal blocks in a model, or several
samples in a batch, are known even then. Trials then show how much memory the changes free.
"""

from collections.abc import Iterator, Sequence

from advisor.judging.judge import Estimate, Finding
from advisor.metrics.base import Metrics
from advisor.metrics.gpu import device
from advisor.metrics.input import loader
from advisor.metrics.settings import flags, model
from advisor.metrics.step import micro_steps_per_step
from advisor.models.gpus import AMPERE
from advisor.models.memory import RECOMPUTE
from advisor.rules import all_rules, ckpt_every_n, grad_accum, zero_1_2, zero_3_fsdp
from advisor.rules._memory import redundancy_free, to_stage
from advisor.rules._spelling import spelling
from advisor.rules.base import Advice, Change, Evidence, Intervention, Safety, Severity

_RISK = (Safety.EXACT, Safety.MEMORY, Safety.NUMERICS, Safety.TRAJECTORY)
"""Kinds of risk, the least first."""

# Micro-batches per update: with more of them, an update takes very long and hardly needs less memory.
PIECES = (2, 4, 8, 16)

# Share of the step that stage 3 removes: it is negative, because stage 3 sends 1.5 times as much. If the extra traffic
# is exposed, a tenth of the step (half of a fifth) is usual, and more if links are slow (assumption).
MORE_TRAFFIC = Estimate(-0.3, -0.1, 0.0)

_TRIED = "The trial showed that the program fits with this change; the freed memory was not predicted."


Ladder = tuple[Finding, ...]
"""Alternatives of which one is followed, from the cheapest to the one that frees the most memory."""


def weight(remedy: Finding) -> tuple[float, int]:
    """Return the predicted share of the step time that the remedy adds, and its risk; less is better."""
    return (0.0 if remedy.alone is None else -remedy.alone.expected, _RISK.index(remedy.change.safety))


def remedy_name(remedy: Finding) -> str:
    """Return the name, with the settings that distinguish it from others of its rule."""
    numbers = [f"{key} {value}" for key, value in remedy.change.settings.items() if key in ("every", "pieces")]
    return " ".join([remedy.rule.id, *numbers])


def ladders(m: Metrics, findings: Sequence[Finding]) -> list[Ladder]:
    """Return the ladders, one per kind of change; `findings` are the rules' findings on the same run."""
    result = [ladder for ladder in map(tuple, (_checkpointed(m), _in_pieces(m), _in_half(m), _sharded(m))) if ladder]
    rule_ids = {remedy.rule.id for ladder in result for remedy in ladder}
    for finding in findings:
        if (finding.advice.memory or 0) < 0 and finding.advice.intervention and finding.rule.id not in rule_ids:
            result.append((finding,))
    return result


def _checkpointed(m: Metrics) -> Iterator[Finding]:
    fact, settings = m.get(model), m.get(flags)
    if fact is None or fact.blocks < 2 or not fact.block or (settings and settings.checkpointing):
        return
    for every in (8, 4, 2, 1) if spelling(m).chooses_blocks else (1,):
        if every > fact.blocks // 2:
            continue
        extra = (RECOMPUTE - 1) / every
        portion = f"one in {every} of" if every > 1 else "each of"
        yield _remedy(
            "ckpt-every-n",
            f"Checkpoint {portion} the {fact.blocks} {fact.block} blocks: their activations are recomputed in the "
            "backward pass.",
            spelling(m).checkpoint(fact.block, every),
            Intervention(name="checkpointing", settings={"block": fact.block, "every": every}, safety=Safety.MEMORY),
            "No effect on results: the same numbers are recomputed.",
            Estimate(*(-extra * factor for factor in ckpt_every_n.RECOMPUTE)),
        )


def _in_pieces(m: Metrics) -> Iterator[Finding]:
    fact = m.get(loader)
    if fact is None or not fact.batch_size or (m.get(micro_steps_per_step) or 1.0) > 1:
        return
    for k in PIECES:
        if k > fact.batch_size:
            break
        change, micro = grad_accum.in_pieces(fact, k), -(-fact.batch_size // k)
        if change is None:
            return
        yield _remedy(
            "grad-accum",
            f"Load {micro} samples at a time and update after every {k} micro-batches.",
            spelling(m).accumulate(k, micro),
            change,
            "The same gradient except rounding, if the loss is a mean over samples and no layer mixes samples of "
            "a batch, as batch normalization does.",
        )


def _in_half(m: Metrics) -> Iterator[Finding]:
    gpu, settings = m.get(device), m.get(flags)
    if gpu is None or (gpu.capability or (0, 0)) < AMPERE or (settings and settings.autocast):
        return
    yield _remedy(
        "precision-bf16",
        "Run the forward pass and the loss under bf16 autocast: activations take about half the memory.",
        spelling(m).half("bf16"),
        Intervention(name="autocast", settings={"dtype": "bfloat16"}, safety=Safety.NUMERICS),
        "Low: matmuls round to 8 bits of mantissa. Compare the loss over a few hundred steps.",
    )


def _sharded(m: Metrics) -> Iterator[Finding]:
    """Yield ZeRO stage 1 with DistributedDataParallel, and stage 3 as the alternative: never both at once."""
    sharded_optimizer, sharded_model = zero_1_2.in_one_optimizer(m), zero_3_fsdp.in_place_of_ddp(m)
    if sharded_optimizer is not None:
        yield _remedy(
            "zero-1-2",
            "Shard the optimizer's state over the ranks: each keeps and updates a part.",
            redundancy_free(m),
            sharded_optimizer,
            "Low: the same update. Before saving, gather the ranks' states with consolidate_state_dict().",
        )
    if sharded_model is not None:
        yield _remedy(
            "zero-3-fsdp",
            "Shard weights, gradients and optimizer state over the ranks: each rank keeps a part, and gathers a "
            "block's weights while the block computes.",
            to_stage(m, 3),
            sharded_model,
            "Low: the same update, rounded in another order. Checkpoints are sharded: save and load them with "
            "the framework's functions.",
            MORE_TRAFFIC,
        )


def _remedy(
    rule: str,
    then: str,
    changes: tuple[Change, ...],
    change: Intervention,
    risk: str,
    alone: Estimate | None = None,
) -> Finding:
    advice = Advice(then=then, changes=changes, basis=_TRIED, risk=risk, fault=True, intervention=change)
    return Finding(
        rule=next(candidate for candidate in all_rules() if candidate.id == rule),
        severity=Severity.ACTION,
        evidence=Evidence(()),
        advice=advice,
        alone=alone,
        in_plan=alone,
    )
