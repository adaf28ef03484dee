"""Plan the memory of a training run: the needs of each placement, the smallest change and the batch that fit."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from advisor.models.memory import Slope, pieces, slope
from advisor.plan.activations import NONE, ActivationCheckpointing, Activations
from advisor.plan.cluster import Cluster
from advisor.plan.model import Model
from advisor.plan.placement import Account, Offload, Placement, account, all_accounts
from profiler.errors import ProfilerError

# A batch that is a multiple of this many samples suits tensor cores and their tiles.
MULTIPLE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A placement and the checkpointing to train with."""

    account: Account
    checkpointing: ActivationCheckpointing


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulation:
    """Micro-batches and accumulation steps that make an optimizer step of the wanted samples."""

    target: int
    """Wanted samples per step, of all GPUs together."""
    micro_batch: int
    steps: int
    """Micro-batches of each GPU per optimizer step."""
    total: int
    """Resulting samples per step of all GPUs: the target, or the next number that divides evenly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """The memory plan of a model on a cluster."""

    model: Model
    cluster: Cluster
    activations: Activations | None = None
    """Activations of one sample; None: only the states are planned."""
    micro_batch: int | None = None
    """Wanted micro-batch; None: at least one sample, and as many as fit."""
    target_batch: int | None = None
    """Wanted samples per optimizer step, of all GPUs together."""

    @property
    def batch(self) -> int:
        """Return the micro-batch that must fit."""
        return self.micro_batch or 1

    @property
    def accounts(self) -> tuple[Account, ...]:
        """Return the accounts of the requested model, the plain one first."""
        return all_accounts(self.model, self.cluster)

    @property
    def accounts_in_8_bits(self) -> tuple[Account, ...]:
        """Return the same with 8-bit moments; empty for optimizers without two moments."""
        smaller_model = self.model.in_8_bits
        return () if smaller_model is None else all_accounts(smaller_model, self.cluster)

    @property
    def plain(self) -> Account:
        """Return the account with everything whole on every GPU."""
        return self.accounts[0]

    def largest(self, one: Account, how: ActivationCheckpointing) -> int | None:
        """Return the largest micro-batch that fits, 0 if not even one sample does; None if not known."""
        sample_bytes = None if self.activations is None else self.activations.kept(how)
        return None if not sample_bytes else max(0, math.floor(one.left(self.cluster) / sample_bytes))

    def least(self, one: Account) -> ActivationCheckpointing | None:
        """Return the checkpointing that recomputes least and lets the micro-batch fit; None if none does."""
        if one.host is not None and self.cluster.host is not None and one.host > self.cluster.host:
            return None
        room = one.left(self.cluster)
        if self.activations is None:
            return NONE if room >= 0 else None
        return self.activations.least(self.batch, room)

    @property
    def choice(self) -> Choice | None:
        """Return the smallest change that fits; None if none does."""
        for accounts, recomputing in self._rungs():
            choices = [
                Choice(account=account, checkpointing=checkpointing)
                for account in accounts
                if (checkpointing := self.least(account)) is not None and (recomputing or checkpointing == NONE)
            ]
            if choices:
                return min(choices, key=lambda choice: choice.checkpointing.extra)
        return None

    def _rungs(self) -> Iterator[tuple[tuple[Account, ...], bool]]:
        """Yield sets of accounts, from the cheapest change to the most expensive one.

        Sharding optimizer and gradients moves no more bytes, recomputation takes time, 8-bit moments change the
        numbers, gathering weights uses the network, and the host is slow.
        """
        account_sets = (self.accounts, self.accounts_in_8_bits)
        own_accounts, small_accounts = (
            {account.placement: account for account in accounts} for accounts in account_sets
        )
        free_placements = [
            placement for placement in own_accounts if placement.stage < 3 and placement.offload is Offload.NOTHING
        ]
        for placement in free_placements:
            yield (own_accounts[placement],), False
        yield tuple(own_accounts[placement] for placement in free_placements), True
        yield tuple(small_accounts[placement] for placement in free_placements if placement in small_accounts), True
        for placement in own_accounts:
            if placement not in free_placements:
                yield (own_accounts[placement],), True
                if placement in small_accounts:
                    yield (small_accounts[placement],), True

    @property
    def least_gpus(self) -> int | None:
        """Return the number of GPUs of this kind that suffice without the host.

        Everything is then sharded, with 8-bit moments and recomputation if possible. None if no number suffices because
        each GPU's own needs are too large.
        """
        smaller_model = self.model.in_8_bits or self.model
        sharded_account = account(smaller_model, self.cluster, Placement(3))
        own_bytes = sharded_account.transient or 0.0
        if self.activations is not None:
            own_bytes += self.batch * min(
                self.activations.kept(option) or math.inf for option in self.activations.choices
            )
        room = self.cluster.budget - own_bytes
        return math.ceil(smaller_model.states.total / room) if room > 0 else None

    @property
    def accumulation(self) -> Accumulation | None:
        """Return the accumulation; None without a target, or without a micro-batch that is known to fit."""
        if self.target_batch is None or (choice := self.choice) is None:
            return None
        micro = self.micro_batch or self.largest(choice.account, choice.checkpointing)
        if not micro:
            return None
        steps, micro = pieces(math.ceil(self.target_batch / self.cluster.gpus), micro)
        return Accumulation(
            target=self.target_batch, micro_batch=micro, steps=steps, total=micro * steps * self.cluster.gpus
        )

    def used(self, choice: Choice) -> float:
        """Return the bytes of a GPU at the planned micro-batch."""
        kept_bytes = 0.0 if self.activations is None else self.activations.kept(choice.checkpointing) or 0.0
        return choice.account.least + self.batch * kept_bytes

    @property
    def whole(self) -> float:
        """Return the bytes that plain training needs on a GPU."""
        return self.used(Choice(account=self.plain, checkpointing=NONE))


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """peak(B) = fixed + each x B, and the room that this leaves. Sizes in bytes."""

    line: Slope
    budget: float
    """Bytes of a GPU that may be filled."""

    @property
    def largest(self) -> int:
        """Return the largest micro-batch; 0 if not even one sample fits."""
        return max(0, math.floor((self.budget - self.line.fixed) / self.line.each))

    @property
    def even(self) -> int:
        """Return the largest micro-batch rounded down to a multiple of eight; 0 if there is none."""
        return self.largest // MULTIPLE * MULTIPLE


def of_peaks(peaks: tuple[tuple[int, float], ...], budget: float) -> BatchPlan:
    """Return the plan for two peaks, each (micro-batch, peak in bytes).

    Raises:
        ProfilerError: they are not two sizes, or the larger one does not take more.
    """
    if len(peaks) != 2 or peaks[0][0] == peaks[1][0]:
        raise ProfilerError(
            "`plan` needs the peaks of two micro-batch sizes to calculate the memory per sample.",
            "Give both: --peak 8:21GB --peak 16:31GB.",
        )
    line = slope(*sorted(peaks))
    if line.each <= 0 or line.fixed < 0:
        raise ProfilerError(
            "The second peak must be larger than the first, because memory grows with the batch.",
            "Measure torch.cuda.max_memory_allocated() for both sizes, each in a separate run.",
        )
    return BatchPlan(line=line, budget=budget)
