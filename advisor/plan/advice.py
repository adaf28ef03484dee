"""Put a memory plan into words: what to do, why, and what it is based on."""

from advisor.models.memory import states
from advisor.plan.memory import Choice, MemoryPlan
from advisor.plan.placement import Offload, Placement
from advisor.plan.quantities import gb, in_gb, parameters
from advisor.units import listed, ordinal, seconds, share

_PLACED = {
    Placement(1): "shard the optimizer state (ZeRO 1)",
    Placement(2): "shard optimizer state and gradients (ZeRO 2)",
    Placement(3): "shard weights, gradients and optimizer state (ZeRO 3, FSDP)",
    Placement(2, Offload.OPTIMIZER): "move optimizer state and gradients to the host (ZeRO 2 with offload)",
    Placement(
        3, Offload.OPTIMIZER
    ): "shard the weights, and move optimizer state and gradients to the host (ZeRO 3 with offload)",
    Placement(3, Offload.ALL): "move weights, gradients and optimizer state to the host (ZeRO 3 with offload)",
}


def headline(plan: MemoryPlan) -> str:
    """Return the plan in one sentence."""
    choice = plan.choice
    if choice is None:
        return f"Nothing fits {_room(plan)}: {_needed(plan)}"
    instructions = changes(plan, choice)
    if instructions:
        phrase = listed(instructions)
        return f"{phrase[:1].upper()}{phrase[1:]}: {_fill(plan, choice)}."
    whole = "Training fits as it is" if plan.activations else "The model's states fit as they are"
    return f"{whole}: {_fill(plan, choice)}."


def changes(plan: MemoryPlan, choice: Choice) -> list[str]:
    """Return the differences from plain training as instructions."""
    instructions = []
    if choice.account.placement.stage:
        instructions.append(_PLACED[choice.account.placement])
    if choice.account.optimizer != plan.model.optimizer:
        instructions.append("keep Adam's moments in 8 bits")
    checkpointing = choice.checkpointing
    if checkpointing.selective:
        instructions.append("recompute attention's scores (or use flash attention, which does not store them)")
    elif checkpointing.every is not None:
        instructions.append(
            "checkpoint every block"
            if checkpointing.every == 1
            else f"checkpoint every {ordinal(checkpointing.every)} block"
        )
    return instructions


def why(plan: MemoryPlan) -> list[str]:
    """Return sentences on what plain training would take, and what each part of the change costs."""
    sentences = [_plainly(plan)]
    choice = plan.choice
    if choice is None:
        return sentences
    account = choice.account
    if account.placement.stage in (1, 2) and account.placement.offload is Offload.NOTHING:
        sentences.append(
            f"This sends the same amount as plain data-parallel training: {in_gb(account.sent)} per step and GPU."
        )
    if account.placement.stage == 3 and plan.cluster.gpus > 1:
        sentences.append(
            f"Gathering weights for each pass sends 1.5 times as much: {in_gb(account.sent)} per step and GPU instead "
            f"of {in_gb(plan.plain.sent)}."
        )
    if choice.checkpointing.every is not None or choice.checkpointing.selective:
        sentences.append(f"Recomputing adds {share(choice.checkpointing.extra)} to forward and backward.")
    if account.optimizer != plan.model.optimizer:
        sentences.append(
            "8-bit moments change the numbers slightly: keep embeddings in 32 bits and compare a short run."
        )
    if account.offload_time is not None:
        host = "" if account.host is None else f" and needs about {in_gb(account.host)} of each node's memory"
        sentences.append(
            f"Offloading adds up to {seconds(account.offload_time)} a step{host}. {_without_host(plan)}".strip()
        )
    largest = plan.largest(account, choice.checkpointing)
    if largest is not None:
        sentences.append(f"The largest micro-batch that then fits: {largest} per GPU.")
    if (accumulation := plan.accumulation) is not None:
        steps = "1 accumulation step" if accumulation.steps == 1 else f"{accumulation.steps} accumulation steps"
        note = (
            ""
            if accumulation.total == accumulation.target
            else f", the next above {accumulation.target} that divides evenly"
        )
        sentences.append(
            f"{steps} of {accumulation.micro_batch} on {plan.cluster.gpus} GPUs make {accumulation.total} samples per "
            f"optimizer step{note}."
        )
    return sentences


def notes(plan: MemoryPlan) -> list[str]:
    """Return what the numbers are based on, and what they leave out."""
    cluster, model = plan.cluster, plan.model
    kind = cluster.device
    sentences = [
        f"{kind.name}: {in_gb(kind.memory)} = {kind.memory / 1024**3:.1f} GiB; {share(cluster.reserve)} of it is kept "
        "free (--reserve) for CUDA's context, communication buffers and fragmentation, which leaves "
        f'{in_gb(cluster.budget)}. GB is 1e9 bytes; only the "GB" of a card or host is read as GiB, as NVML counts it.'
        + ("" if kind.peaks else " Cards with inline ECC (T4, A10, L4, L40S) have 6% less: name them with --gpu.")
    ]
    if plan.activations is None:
        sentences.append(
            f"Activations are not included. Give {' '.join(model.missing)} (and --vocabulary) for a transformer's, or "
            "--activation-bytes-per-sample, or two measured peaks (--peak 8:21GB --peak 16:31GB)."
        )
    else:
        sentences.append(
            f"Activations: {plan.activations.source}. A measured size is more accurate: --peak, or a recorded run."
        )
    if any(account.transient is None for account in plan.accounts):
        sentences.append(
            "ZeRO 3 gathers two blocks of weights while it computes. Their size is unknown and not included in the "
            "total: give --largest-unit, the parameters of one block (or --layers)."
        )
    if model.autocast:
        sentences.append(_master(plan))
    if model.unmatched is not None:
        sentences.append(
            f"A transformer of that shape has about {parameters(model.unmatched)} parameters, not "
            f"{parameters(model.parameters)}: check --params, --layers and --hidden, unless it is a mixture of experts."
        )
    if kind.peaks is not None and kind.peaks.tf32 is None and model.precision not in ("fp32", "fp16"):
        sentences.append(f"{kind.name} supports neither bf16 nor TF32: plan with --precision fp16 or fp32.")
    if model.optimizer == "adafactor":
        sentences.append("Adafactor's state is calculated for square matrices without a first moment: an upper limit.")
    if (node_advice := _node_only(plan)) is not None:
        sentences.append(node_advice)
    return sentences


def _master(plan: MemoryPlan) -> str:
    """Return the alternative accounting of the same arithmetic, as DeepSpeed and Megatron do it."""
    master_states = states(plan.model.parameters, (2, 2, 4 + plan.model.bytes_each[2]))
    ranks = plan.cluster.gpus
    totals = " / ".join(gb(master_states.sharded(stage, ranks).total) for stage in (range(4) if ranks > 1 else (0,)))
    sharded = (
        f", the optimizer's part {gb(master_states.optimizer)} -> {in_gb(master_states.sharded(1, ranks).optimizer)}"
        if ranks > 1
        else ""
    )
    return (
        f"{plan.model.precision} is torch's autocast: weights and gradients in fp32, and 16-bit copies of the weights "
        f"while they are used (transient). DeepSpeed and Megatron keep 16-bit weights and an fp32 master copy: "
        f"{totals} GB{' without ZeRO and at stages 1 / 2 / 3' if ranks > 1 else ''}{sharded} (--precision bf16-master)."
    )


def _node_only(plan: MemoryPlan) -> str | None:
    """Return the advice to shard within each node only, which keeps the gathering off the network.

    None if it does not apply.
    """
    cluster, choice = plan.cluster, plan.choice
    if choice is None or cluster.nodes == 1 or choice.account.placement != Placement(3):
        return None
    size = choice.account.least + plan.model.states.total * (1 / cluster.in_node - 1 / cluster.gpus)
    return (
        f"Sharded within each node of {cluster.in_node} only (HSDP: a mesh of {cluster.nodes} x {cluster.in_node}), "
        f"states take {in_gb(size)} per GPU, and weights are not gathered over the network."
    )


def _plainly(plan: MemoryPlan) -> str:
    account = plan.plain
    parts = [
        f"weights {gb(account.states.parameters)}",
        f"gradients {gb(account.states.gradients)}",
        f"optimizer state {gb(account.states.optimizer)}",
    ]
    if account.transient:
        parts.append(f"cast weights {gb(account.transient)}")
    if plan.activations is not None:
        parts.append(f"activations of {_samples(plan.batch)} {gb(plan.batch * plan.activations.whole)}")
    location = "With everything on every GPU" if plan.cluster.gpus > 1 else "On one GPU"
    amount = f"{in_gb(plan.whole)}, and {in_gb(plan.cluster.budget)} may be used"
    return f"{location}, training takes {amount}: {', '.join(parts)}."


def _fill(plan: MemoryPlan, choice: Choice) -> str:
    units = " and two gathered units" if choice.account.transient is None else ""
    rest = "" if plan.activations else f", {in_gb(choice.account.left(plan.cluster))} left for activations"
    return f"{in_gb(plan.used(choice))}{units} of {in_gb(plan.cluster.budget)} per GPU{rest}"


def _room(plan: MemoryPlan) -> str:
    gpus = plan.cluster.gpus
    return f"{gpus} GPU{'s' * (gpus > 1)} of {in_gb(plan.cluster.budget)}"


def _needed(plan: MemoryPlan) -> str:
    least = plan.least_gpus
    if least is None:
        return (
            "no number of them is enough, because each holds the weights in use and the activations of "
            f"{_samples(plan.batch)}. "
            + ("A smaller micro-batch, s" if plan.batch > 1 else "S")
            + "horter sequences, tensor or sequence parallelism, or larger GPUs are needed."
        )
    host = (
        ""
        if plan.cluster.host is None
        else f" ({in_gb(plan.cluster.host)} of host memory are not enough for offloading)"
    )
    return f"at least {least} GPUs of this kind are needed{host}."


def _without_host(plan: MemoryPlan) -> str:
    least = plan.least_gpus
    if least is None or least <= plan.cluster.gpus:
        return ""
    return f"Without it, at least {least} GPUs of this kind are needed."


def _samples(number: int) -> str:
    return "1 sample" if number == 1 else f"{number} samples"
