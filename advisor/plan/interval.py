"""Plan how often to save checkpoints, what failures cost, and whether interruptible machines pay.

Times are in seconds.
"""

import math
from dataclasses import dataclass

from advisor.models import checkpoint_interval as model
from advisor.units import digits, money, seconds, share
from profiler.errors import ProfilerError

# Usual intervals, shown next to the best and the present one.
_USUAL = (60.0, 300.0, 900.0, 1800.0, 3600.0, 4 * 3600.0)

# Least share of the whole time for which changing the interval is worthwhile.
WORTH_SAYING = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalPlan:
    """A job that fails and restarts from its last checkpoint."""

    between_failures: float
    """Mean time between failures of one node if `nodes` is given, else of the whole job."""
    save: float
    """Time that a checkpoint blocks the training."""
    restart: float = 0.0
    """Time from a failure until training continues from its checkpoint."""
    nodes: int = 1
    interval: float | None = None
    """Present interval: work between two checkpoints."""
    discount: float | None = None
    """Discount of interruptible machines; the mean time between failures is then theirs."""
    gpu_price: float | None = None
    """Price of a GPU-hour on demand."""
    gpus: int | None = None
    async_save: float | None = None
    """Time that a checkpoint blocks the training if the rest of it is written in parallel."""

    def __post_init__(self) -> None:
        if self.save >= self.mtbf:
            raise ProfilerError(
                f"A save takes {seconds(self.save)}, and the job lasts {seconds(self.mtbf)} between failures.",
                "Make saves smaller or faster (sharded, to local disks, asynchronously) before you plan an interval.",
            )
        if self.async_save is not None and self.async_save >= self.save:
            raise ProfilerError(
                f"An asynchronous save that blocks for {seconds(self.async_save)} has no advantage over a "
                f"synchronous one of {seconds(self.save)}.",
                "Give the time of the copy to host memory as --async-save-cost, and the time of the whole save as "
                "--save-cost.",
            )
        if math.isinf(self.inflated):
            raise ProfilerError(
                f"With restarts of {seconds(self.restart)} and failures every {seconds(self.mtbf)}, the job practically"
                " never finishes.",
                "Give the time of one restart as --restart-cost, and the time between failures of the whole job as "
                "--mtbf (of one node with --nodes).",
            )

    @property
    def mtbf(self) -> float:
        """Return the mean time between failures of the whole job: a failure of any node ends it."""
        return self.between_failures / self.nodes

    @property
    def best(self) -> float:
        """Return the seconds between checkpoints that lose least time, by Daly's formula."""
        return model.daly(self.save, self.mtbf)

    @property
    def young(self) -> float:
        """Return Young's interval, the first-order approximation of Daly's."""
        return model.young(self.save, self.mtbf)

    @property
    def best_async(self) -> float | None:
        """Return the best interval with asynchronous checkpoints; None without their cost.

        It is at least as long as writing one checkpoint.
        """
        return None if self.async_save is None else max(model.daly(self.async_save, self.mtbf), self.save)

    def inflation(self, interval: float, save: float | None = None) -> float:
        """Return the expected time over the time of useful work; `math.inf` if it practically never ends."""
        return model.inflation(interval, self.save if save is None else save, self.mtbf, self.restart)

    @property
    def inflated(self) -> float:
        """Return the inflation at the best interval, with asynchronous checkpoints if they are planned."""
        if self.best_async is None:
            return self.inflation(self.best)
        return self.inflation(self.best_async, self.async_save)

    @property
    def table(self) -> tuple[tuple[float, float, str], ...]:
        """Return the rows (interval, inflation, label), ascending: usual intervals, the best and the present one."""
        rows = {usual: "" for usual in _USUAL if usual <= self.mtbf and abs(usual / self.best - 1) > 0.01}
        rows[self.best] = "best"
        if self.interval is not None:
            rows[self.interval] = "now"
        return tuple((interval, self.inflation(interval), label) for interval, label in sorted(rows.items()))

    @property
    def break_even(self) -> float:
        """Return the least discount that pays off."""
        return model.break_even_discount(self.inflated)

    @property
    def cost_ratio(self) -> float | None:
        """Return the cost on interruptible machines over that on demand without failures; None without a discount."""
        return None if self.discount is None else model.spot_cost(self.discount, self.inflated)

    @property
    def headline(self) -> str:
        """Return the plan in one sentence."""
        best = self.best if self.best_async is None else self.best_async
        mode = "" if self.best_async is None else ", asynchronously"
        return (
            f"Save every {seconds(best)} of training{mode}: with failures and saves, the job then takes "
            f"{digits(self.inflated)} times as long as the work itself."
        )

    @property
    def verdict(self) -> str | None:
        """Return the verdict on interruptible machines; None without a discount."""
        ratio = self.cost_ratio
        if ratio is None or self.discount is None:
            return None
        price = "" if self.gpu_price is None else self._prices(self.gpu_price, ratio)
        discount, break_even = share(self.discount), share(self.break_even)
        if ratio < 1:
            return (
                f"Use spot instances: at {discount} off they cost {digits(ratio)} times as much as on-demand machines, "
                f"including lost work and restarts; they pay off from {break_even} off.{price}"
            )
        return (
            f"Stay on demand: at {discount} off, spot instances cost {digits(ratio)} times as much, including lost "
            f"work and restarts; they pay off only from {break_even} off.{price}"
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return what else follows from the interval, a sentence each."""
        sentences = []
        if self.nodes > 1:
            sentences.append(
                f"{self.nodes} nodes that each fail once in {seconds(self.between_failures)} make a job that fails "
                f"once in {seconds(self.mtbf)}."
            )
        if self.interval is not None:
            sentences.append(self._present(self.interval))
        if self.best_async is not None and self.async_save is not None:
            sentences.append(
                f"Saves that block for {seconds(self.async_save)} instead of {seconds(self.save)} bring it from "
                f"{times(self.inflation(self.best))} the work (every {seconds(self.best)}) to {times(self.inflated)}. "
                "One save must be written before the next begins; a failure in that time goes back to the previous "
                "save."
            )
        if not self.restart:
            sentences.append(
                "Restarts are assumed to take no time: give --restart-cost, the time from a failure to the next step."
            )
        sentences.append(
            "Failures are assumed to be random with a constant rate (Daly 2006); spot instances are compared with "
            "on-demand machines that never fail."
            if self.discount is not None
            else "Failures are assumed to be random with a constant rate (Daly 2006)."
        )
        return tuple(sentences)

    def _present(self, interval: float) -> str:
        present_inflation, best_inflation = self.inflation(interval), self.inflation(self.best)
        if interval > self.mtbf:
            return (
                f"The current interval, {seconds(interval)}, is longer than the {seconds(self.mtbf)} between "
                f"failures: most work is lost before it is saved ({times(present_inflation)} the work). Save every "
                f"{seconds(self.best)} instead."
            )
        saved_share = 1 - best_inflation / present_inflation
        saving = (
            f"that saves {share(saved_share)} of the time"
            if saved_share > WORTH_SAYING
            else "that is as good as the best"
        )
        return (
            f"The current interval of {seconds(interval)} makes it {times(present_inflation)} the work, "
            f"{seconds(self.best)} makes it {times(best_inflation)}: {saving}."
        )

    def _prices(self, price: float, ratio: float) -> str:
        sentence = f" An hour of work on one GPU costs {money(ratio * price)} instead of {money(price)}"
        if self.gpus is not None:
            sentence += (
                f", on all {self.gpus} of them {money(ratio * price * self.gpus)} instead of {money(price * self.gpus)}"
            )
        return f"{sentence}."


def times(inflated: float) -> str:
    """Return an inflation in words."""
    return "infinitely many times" if math.isinf(inflated) else f"{digits(inflated)} times"
