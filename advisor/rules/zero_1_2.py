"""Every rank keeps a whole copy of gradients and optimizer state.

In data-parallel training these copies are identical. ZeRO gives each rank a part to keep and update: stage 1 shards the
optimizer state, stage 2 also the gradients. The communication volume stays the same, because an all-reduce consists of
a reduce-scatter and an all-gather.

Wrong when: there is only one GPU, or activations, not these states, fill the memory. Sharding alone does not make
anything faster; the larger batch that then fits may.

Source: Rajbhandari et al., ZeRO, SC 2020, https://arxiv.org/abs/1910.02054
Source: DeepSpeed, ZeRO tutorial, https://www.deepspeed.ai/tutorials/zero/
Source: PyTorch, fully_shard, https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from advisor.metrics import Metrics, Threshold, memory, settings, sharding
from advisor.models.memory import FILL
from advisor.rules._memory import pressure, to_stage
from advisor.rules.base import Advice, Area, Confidence, Evidence, Intervention, Rule, Safety, evidence, measure

RULE = Rule("Shard optimizer state over the ranks", Area.DISTRIBUTED, Confidence.EMPIRICAL, difficulty=2)

MIN_SHARE = Threshold(
    0.35, "Below this share of the peak, sharding states frees too little to change what fits (assumption)."
)

# Optimizers whose update uses a whole tensor or the whole model: on shards, it would be a different update.
NOT_BY_ELEMENT = ("LBFGS", "Muon", "SparseAdam")


def when(m: Metrics) -> Evidence | None:
    """If memory is under pressure on two or more ranks, and unsharded gradients and optimizer state make up at least 35
    % of the memory peak,
    """
    if m[settings.data_parallel_size] < 2 or not m[memory.memory_pressure]:
        return None
    if not sharding.data_parallel(m) or m[settings.flags].fsdp or sharding.stage(m):
        return None  # independent jobs, or sharded already
    states, peak = (measure(m, memory.mem_optim), measure(m, memory.mem_grads)), m[memory.mem_peak_allocated]
    replicated_bytes = sum(fact.value for fact in states)
    if replicated_bytes < m[MIN_SHARE] * peak:
        return None
    ranks = measure(m, settings.world_size, ">=", 2)
    return evidence(*states, ranks, *pressure(m), note=f"together {replicated_bytes / peak:.0%} of the peak")


def then(m: Metrics, found: Evidence) -> Advice:
    """then shard the optimizer state over the ranks, and the gradients too if that is not enough."""
    old_states, ranks = sharding.states(m), m[settings.shard_size]
    stage = 1 if sharding.filled_at(m, 1) <= FILL else 2
    new_states = old_states.sharded(stage, ranks)
    sharded_parts = "optimizer state" if stage == 1 else "optimizer state and gradients"
    return Advice(
        then=f"Shard {sharded_parts} over the {ranks} ranks (ZeRO stage {stage}): weights, gradients and optimizer "
        f"state of a rank shrink from {old_states.total / 1e9:.2f} to {new_states.total / 1e9:.2f} GB, optimizer state "
        f"alone from {old_states.optimizer / 1e9:.2f} to {new_states.optimizer / 1e9:.2f} GB. Use either DeepSpeed or "
        "FSDP2.",
        changes=to_stage(m, stage),
        basis="ZeRO: the sharded parts are divided by the number of ranks; the communication volume stays the same.",
        memory=round(new_states.total - old_states.total),
        intervention=in_one_optimizer(m) if stage == 1 else None,
        risk="Low: the same update. Checkpoints are sharded too: save and load them with the framework's functions.",
        fault=True,
    )


def in_one_optimizer(m: Metrics) -> Intervention | None:
    """Return the intervention that applies stage 1 from outside.

    None if the optimizer is not torch's or cannot be sharded, or the ranks do not train one model.
    """
    optimizer, flags = m.get(settings.optimizer), m.get(settings.flags)
    if optimizer is None or flags is None or (m.get(settings.data_parallel_size) or 1) < 2:
        return None
    if (
        not flags.ddp
        or flags.zero_stage
        or not optimizer.module.startswith("torch.optim")
        or optimizer.name in NOT_BY_ELEMENT
    ):
        return None
    return Intervention(name="zero_redundancy", settings={"name": optimizer.name}, safety=Safety.MEMORY)
