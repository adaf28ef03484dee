"""Present a plan to readers: sentences, tables of text, settings. All forms but JSON show the same."""

import math

from advisor.plan import advice
from advisor.plan.interval import IntervalPlan
from advisor.plan.memory import BatchPlan, Choice, MemoryPlan
from advisor.plan.placement import Account
from advisor.plan.plan import Plan
from advisor.plan.quantities import gb, in_gb, parameters
from advisor.plan.settings import settings
from advisor.report.render.section import Bar, BarPart, Section, Table
from advisor.units import digits, seconds, share

UNKNOWN = "?"


def sections(plan: Plan) -> tuple[Section, ...]:
    """Return the requested sections, in the order of the decisions."""
    memory, batch, interval = plan.memory, plan.batch, plan.interval
    all_sections = (memory and _memory(memory), batch and _batch(batch), interval and _interval(interval))
    return tuple(section for section in all_sections if section)


def _memory(plan: MemoryPlan) -> Section:
    choice = plan.choice
    tables = [_states(plan, plan.accounts, choice)]
    if plan.accounts_in_8_bits:
        tables.append(_states(plan, plan.accounts_in_8_bits, choice))
    if plan.activations is not None:
        tables += [_batches(plan, choice), _checkpointing(plan)]
    tables += _deepspeed(plan)
    return Section(
        id="memory",
        title="Memory",
        headline=advice.headline(plan),
        sentences=tuple(advice.why(plan)),
        tables=tuple(tables),
        settings=settings(plan),
        notes=tuple(advice.notes(plan)),
        bars=_bars(plan, choice),
        tiles=_tiles(plan, choice),
    )


def _tiles(plan: MemoryPlan, choice: Choice | None) -> tuple[tuple[str, str], ...]:
    tiles = [
        ("Parameters", parameters(plan.model.parameters)),
        ("GPUs", f"{plan.cluster.gpus} x {in_gb(plan.cluster.device.memory)}"),
        ("Plain training", in_gb(plan.whole)),
    ]
    if choice is not None:
        tiles.append(("As advised", in_gb(plan.used(choice))))
        if (largest := plan.largest(choice.account, choice.checkpointing)) is not None:
            tiles.append(("Largest micro-batch", str(largest)))
    return tuple(tiles)


def _states(plan: MemoryPlan, accounts: tuple[Account, ...], choice: Choice | None) -> Table:
    """Return the table of states; all columns but the last two are GB of one GPU."""
    name = accounts[0].optimizer
    return Table(
        f"{name}, {plan.model.precision}: GB on each GPU",
        ("States", "Weights", "Grads", "Optim.", "Trans.", "Total", "Left", "Host"),
        tuple(_state_row(plan, account) for account in accounts),
        chosen=next((i for i, account in enumerate(accounts) if choice and account == choice.account), None),
        note="Trans.: weights that exist only while they are used. Left: memory for activations; short: missing "
        "memory. Host: memory per node."
        if accounts == plan.accounts
        else "",
    )


def _state_row(plan: MemoryPlan, one: Account) -> tuple[str, ...]:
    unknown = one.transient is None
    left = one.left(plan.cluster)
    return (
        one.placement.name(plan.cluster.gpus),
        gb(one.states.parameters),
        gb(one.states.gradients),
        gb(one.states.optimizer),
        UNKNOWN if one.transient is None else gb(one.transient),
        f"{gb(one.least)}+" if unknown else gb(one.least),
        f"{gb(-left)} short" if left < 0 else (f"<{gb(left)}" if unknown else gb(left)),
        "" if one.host is None else gb(one.host),
    )


def _batches(plan: MemoryPlan, choice: Choice | None) -> Table:
    """Return the table of the largest micro-batches of each placement."""
    assert plan.activations is not None
    ways = [way for way in plan.activations.choices if way.every in (None, 1, 2)]
    accounts = plan.accounts + plan.accounts_in_8_bits
    rows = []
    for account in accounts:
        name = account.placement.name(plan.cluster.gpus)
        suffix = ", 8 bits" if account.optimizer != plan.model.optimizer else ""
        way = plan.least(account)
        rows.append(
            (
                name + suffix,
                *(_number(plan.largest(account, checkpointing)) for checkpointing in ways),
                "-" if way is None else way.name,
            )
        )
    return Table(
        "Largest micro-batch, by what is checkpointed",
        ("States", *(way.name for way in ways), f"{plan.batch} fits with"),
        tuple(rows),
        chosen=next((i for i, account in enumerate(accounts) if choice and account == choice.account), None),
        note="0: not even one sample fits. -: does not fit with any checkpointing"
        + (" the GPU or the host." if plan.cluster.host is not None else "."),
    )


def _checkpointing(plan: MemoryPlan) -> Table:
    assert plan.activations is not None
    ways = list(plan.activations.choices)
    if (choice := plan.choice) is not None and choice.checkpointing not in ways:
        ways = sorted([*ways, choice.checkpointing], key=lambda way: way.extra)
    return Table(
        f"Activations of {'1 sample' if plan.batch == 1 else f'{plan.batch} samples'}",
        ("Checkpointed", "GB", "Time added"),
        tuple(
            (way.name, gb(plan.batch * kept_bytes), share(way.extra))
            for way in ways
            if (kept_bytes := plan.activations.kept(way)) is not None
        ),
        chosen=next((i for i, way in enumerate(ways) if choice and way == choice.checkpointing), None),
        note="Time added: extra time of the forward and backward pass.",
    )


def _deepspeed(plan: MemoryPlan) -> list[Table]:
    rows = tuple(
        (account.placement.name(plan.cluster.gpus), gb(account.deepspeed.gpu), gb(account.deepspeed.host))
        for account in plan.accounts
        if account.deepspeed is not None
    )
    note = "Weights, gradients and optimizer state at 16 bits with a master copy. Host memory is per node and "
    note += "counts the whole model once per GPU, as when it is created without deepspeed.zero.Init."
    return [Table("DeepSpeed's own estimators, in GB", ("States", "GPU", "Host"), rows, note=note)] if rows else []


def _bars(plan: MemoryPlan, choice: Choice | None) -> tuple[Bar, ...]:
    """Return the bars of plain training and of the advice, on one scale."""
    capacity = plan.cluster.device.memory
    longest = max(capacity, plan.whole)
    activations = 0.0 if plan.activations is None else plan.batch * plan.activations.whole
    bars = [_bar("Plain", plan.plain, activations, capacity, longest)]
    if choice is not None and (choice.account != plan.plain or choice.checkpointing.extra):
        kept_activations = plan.used(choice) - choice.account.least
        bars.append(_bar("As advised", choice.account, kept_activations, capacity, longest))
    return tuple(bars)


def _bar(label: str, one: Account, activations: float, capacity: float, longest: float) -> Bar:
    amounts = (
        ("params", "Weights", one.states.parameters),
        ("grads", "Gradients", one.states.gradients),
        ("optim", "Optimizer", one.states.optimizer),
        ("nontorch", "Transient", one.transient or 0.0),
        ("activations", "Activations", activations),
        ("free", "Free", max(0.0, capacity - one.least - activations)),
    )
    total = sum(amount for _, _, amount in amounts)
    used_bytes = one.least + activations
    excess = f", {in_gb(used_bytes - capacity)} more than a GPU has" if used_bytes > capacity else ""
    return Bar(
        f"{label}: {in_gb(used_bytes)}{excess}",
        tuple(BarPart(name, text, amount, in_gb(amount)) for name, text, amount in amounts if amount > 0),
        total,
        total / longest,
    )


def _batch(found: BatchPlan) -> Section:
    remark = f", {found.even} as a multiple of 8" if found.even not in (0, found.largest) else ""
    return Section(
        id="batch",
        title="Micro-batch from two measured peaks",
        headline=f"A GPU holds {found.largest} samples at once{remark}."
        if found.largest
        else "Not even one sample fits on a GPU: shard, checkpoint or use larger GPUs.",
        sentences=(
            f"peak(B) = {in_gb(found.line.fixed)} + {in_gb(found.line.each)} x B; {in_gb(found.budget)} may be used.",
        ),
    )


def _interval(plan: IntervalPlan) -> Section:
    table = plan.table
    verdict = plan.verdict
    return Section(
        id="interval",
        title="Checkpoint interval",
        headline=plan.headline,
        sentences=((verdict,) if verdict else ()) + plan.remarks,
        tables=(
            Table(
                f"Total time / useful time: saves of {seconds(plan.save)}, a failure every {seconds(plan.mtbf)}, "
                f"restarts of {seconds(plan.restart)}",
                ("Interval", "Time", "Lost", ""),
                tuple(
                    (seconds(interval), _times(inflation), share(1 - 1 / inflation), label)
                    for interval, inflation, label in table
                ),
                chosen=next(i for i, row in enumerate(table) if row[0] == plan.best),
                note=f"Best: Daly's interval. Young's first-order interval: {seconds(plan.young)}. Lost: share of all "
                "time spent on saves, restarts and repeated work.",
            ),
        ),
        tiles=(
            ("Save every", seconds(plan.best if plan.best_async is None else plan.best_async)),
            ("Total / useful time", digits(plan.inflated)),
            ("Spot pays off from", f"{share(plan.break_even)} off"),
        ),
    )


def _times(inflated: float) -> str:
    return "endless" if math.isinf(inflated) else f"{inflated:.3f}"


def _number(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)
