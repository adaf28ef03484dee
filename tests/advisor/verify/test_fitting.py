"""Programs that run out of memory are made to fit, with the smallest sufficient change."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from gpu_runs import ADAM, FLAGS, LOADER, MODEL, gpu_metrics
from programs import COMMAND, ENDS_GROUP, PATIENCE, ROOT

from advisor.judging.judge import Estimate
from advisor.metrics.input import loader
from advisor.metrics.settings import flags, model, optimizer, world_size
from advisor.rules.base import Safety
from advisor.verify import kept
from advisor.verify.fitting import Ending, _sorted_out, _that_can_be_made, smallest
from advisor.verify.remedies import ladders, remedy_name, weight

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Eight equal blocks, and an allocator of LIMIT bytes for what a step holds. Unchanged, a step takes 2.9 million bytes.
LIMITED = """
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(32, 128), torch.nn.Linear(128, 32)
    def forward(self, features):
        return features + self.down(torch.nn.functional.gelu(self.up(features)))

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block() for _ in range(8)])
        self.head = torch.nn.Linear(32, 1)
    def forward(self, features):
        for block in self.blocks:
            features = block(features)
        return self.head(features)

class Limited(TorchDispatchMode):
    held = {}
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                self.held.setdefault(storage._cdata, (StorageWeakRef(storage), storage.nbytes()))
        self.held = {key: each for key, each in self.held.items() if not each[0].expired()}
        if sum(size for _, size in self.held.values()) > LIMIT:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 byte")
        return result

def train():
    torch.set_num_threads(1)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    data = TensorDataset(torch.randn(512, 32), torch.randn(512, 1))
    loader = DataLoader(data, batch_size=256)
    with Limited():
        for epoch in range(500):
            for features, targets in loader:
                loss = torch.nn.functional.mse_loss(model(features), targets)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()

train()
"""
# Two ranks, each with an allocator of LIMIT numbers for its part of weights, gradients and optimizer state: 8,580
# weights, as many gradients, and twice as many numbers for Adam.
RANKS = (
    ENDS_GROUP
    + """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(64, 64)
    def forward(self, features):
        return features + self.lin(features).relu()

def held(tensor):
    return getattr(tensor, "_local_tensor", tensor).numel()

torch.set_num_threads(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Sequential(Block(), Block(), torch.nn.Linear(64, 4)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
for step in range(200):
    loss = (model(torch.randn(4, 64)) - 1).square().mean()
    loss.backward()
    optimizer.step()
    kept = getattr(optimizer, "optim", optimizer).state.values()
    states = sum(held(value) for state in kept for value in state.values())
    if states + 2 * sum(map(held, model.parameters())) > LIMIT:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 byte")
    optimizer.zero_grad()
"""
)
TORCHRUN = ("torchrun", "--standalone", "--nproc-per-node", "2")
OPTIONS = ("--goal", "memory", "--yes", "--steps", "40", "--out", "tuning")


@pytest.fixture
def fitting(script, start):
    """Make the program fit into `limit` bytes; return how that ended and its folder."""

    def begin(limit, *options, text=LIMITED, launcher=()):
        path = script(text.replace("LIMIT:", f"{limit}:"), "project/train.py")
        words = (*COMMAND, "tune", *OPTIONS, *options, *launcher, path.name)
        running = start(*words, cwd=path.parent, env={"PYTHONPATH": str(ROOT)})
        running.process.wait(8 * PATIENCE)
        return running.finish(), path.parent / "tuning"

    return begin


@pytest.mark.slow
def test_the_cheapest_change_that_suffices_is_found(fitting):
    ran, folder = fitting(2_000_000)

    assert ran.status == 0, ran.err
    assert b"Without changes: it ran out of memory in its first step." in ran.err
    tuned = tomllib.loads((folder / "tuned.toml").read_text())
    assert (tuned["fits"], tuned["steps_before"], tuned["steps_after"]) == (True, 0, 40)
    (change,) = tuned["change"]
    assert (change["name"], change["settings"]) == ("checkpointing", {"block": "Block", "every": 2})
    page = (folder / "tuning.md").read_text()
    assert "apply_activation_checkpointing(model" in page
    assert "blocks[::2]" in page
    assert "--allow trajectory" in page
    profile = folder / "fitting/ckpt-every-n-every-2"
    assert kept.read(profile)["ckpt-every-n"].applied
    why = kept.read(profile)["ckpt-every-n"].why
    for name in ("report.html", "report.md"):
        assert why
        assert why in (profile / name).read_text()


@pytest.mark.slow
def test_two_changes_where_one_does_not_suffice(fitting):
    two_samples = LIMITED.replace("randn(512,", "randn(4, 256,").replace("batch_size=256", "batch_size=2")
    ran, folder = fitting(1_600_000, "--allow", "trajectory", text=two_samples)

    assert ran.status == 0, ran.err
    tuned = tomllib.loads((folder / "tuned.toml").read_text())
    first, second = tuned["change"]
    assert first["settings"] == {"block": "Block", "every": 1}
    assert second["settings"]["pieces"] == 2
    assert (folder / "fitting/ckpt-every-n-every-1+grad-accum-pieces-2/report.md").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "allowed", "name"),
    [
        (30_000, ("--allow", "numerics"), "zero_redundancy"),
        (20_000, ("--allow", "numerics"), "fsdp2"),
        (20_000, (), None),
    ],
)
def test_ranks_use_least_sharding_that_suffices(fitting, limit, allowed, name):
    ran, folder = fitting(limit, *allowed, text=RANKS, launcher=TORCHRUN)

    tuned = tomllib.loads((folder / "tuned.toml").read_text())
    assert [each["name"] for each in tuned.get("change", ())] == [name] * tuned["fits"], ran.err
    assert tuned["fits"] is bool(name)
    if not allowed:
        assert b"zero-3-fsdp: it changes more than speed; --allow numerics tries it." in ran.err


@pytest.mark.slow
def test_reports_that_nothing_makes_program_fit(fitting):
    ran, folder = fitting(300_000)

    assert ran.status == 1
    assert b"No set of changes" in ran.err
    assert tomllib.loads((folder / "tuned.toml").read_text()) == {"fits": False, "steps_before": 0}


@pytest.mark.slow
def test_failure_other_than_out_of_memory_is_reported(fitting):
    ran, _ = fitting(0, text=LIMITED.replace("can't allocate memory", "no"))

    assert ran.status == 1
    assert b"The program did not run out of memory" in ran.err


# ---- which changes, and in which order ----

PLAIN = replace(FLAGS, autocast=False)


def metrics(**changes):
    """Return metrics of a run on a GPU with 32 blocks and a batch of 16, of which only this is known."""
    known = {"model": MODEL, "loader": LOADER, "flags": PLAIN, "optimizer": ADAM, **changes}
    values = {"model": model, "loader": loader, "flags": flags, "optimizer": optimizer, "ranks": world_size}
    return gpu_metrics({values[name]: value for name, value in known.items()})


def names(found):
    return [[remedy_name(remedy) for remedy in ladder] for ladder in found]


def test_remedies_are_listed_without_memory_measurements():
    assert names(ladders(metrics(), ())) == [
        [f"ckpt-every-n every {every}" for every in (8, 4, 2, 1)],
        [f"grad-accum pieces {k}" for k in (2, 4, 8, 16)],
        ["precision-bf16"],
    ]


@pytest.mark.parametrize(
    ("changes", "gone"),
    [
        ({"flags": replace(PLAIN, checkpointing=True)}, "ckpt-every-n"),
        ({"model": replace(MODEL, blocks=1)}, "ckpt-every-n"),
        ({"loader": replace(LOADER, batch_size=1)}, "grad-accum"),
        ({"loader": replace(LOADER, place=None)}, "grad-accum"),
        ({"flags": replace(FLAGS, autocast=True)}, "precision-bf16"),
    ],
)
def test_inapplicable_change_is_not_a_remedy(changes, gone):
    found = names(ladders(metrics(**changes), ()))
    assert len(found) == 2
    assert not any(remedy.startswith(gone) for ladder in found for remedy in ladder)


def test_ddp_ranks_can_shard_optimizer_or_everything():
    """One or the other."""
    shared = {"flags": replace(PLAIN, ddp=True), "ranks": 2}
    assert ["zero-1-2", "zero-3-fsdp"] in names(ladders(metrics(**shared), ()))
    not_by_element = replace(ADAM, name="LBFGS")
    assert ["zero-3-fsdp"] in names(ladders(metrics(**shared, optimizer=not_by_element), ()))
    for other in ({"ranks": 2}, {"flags": replace(PLAIN, ddp=True), "ranks": 1}):
        assert len(ladders(metrics(**other), ())) == 3


class Device:
    """A device that frees more for each change further up its ladder; a run fits if enough is freed."""

    def __init__(self, known, needed):
        self.freed = {remedy_name(remedy): place + 1 for ladder in known for place, remedy in enumerate(ladder)}
        self.needed = needed
        self.asked = []

    def __call__(self, chosen):
        self.asked.append([remedy_name(remedy) for remedy in chosen])
        return sum(self.freed[remedy_name(remedy)] for remedy in chosen) >= self.needed


def best(needed, *, without=()):
    known = [ladder for ladder in ladders(metrics(), ()) if ladder[0].rule.id not in without]
    fits = Device(known, needed)
    return [remedy_name(remedy) for remedy in smallest(known, fits)], fits.asked


def test_remedies_are_ordered_by_cost_then_risk():
    assert best(1)[0] == ["precision-bf16"]
    assert best(2)[0] == ["grad-accum pieces 4"]
    assert best(1, without=("precision-bf16",))[0] == ["grad-accum pieces 2"]
    assert best(2, without=("grad-accum",))[0] == ["ckpt-every-n every 4"]


def test_fewest_and_weakest_changes_that_suffice_are_chosen():
    assert best(4)[0] == ["grad-accum pieces 16"]
    assert best(5)[0] == ["grad-accum pieces 16", "precision-bf16"]
    assert best(6)[0] == ["ckpt-every-n every 4", "grad-accum pieces 16"]
    assert best(9)[0] == ["ckpt-every-n every 1", "grad-accum pieces 16", "precision-bf16"]


def test_search_stops_if_all_changes_together_do_not_suffice():
    found, asked = best(10)
    assert found == []
    assert len(asked) == 4


def test_cost_of_checkpointing_grows_with_recomputation():
    every = next(ladder for ladder in ladders(metrics(), ()) if len(ladder) == 4)
    times = [weight(remedy)[0] for remedy in every]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(1 / 3)
    assert all(isinstance(remedy.alone, Estimate) for remedy in every)
    assert {remedy.change.safety for remedy in every} == {Safety.MEMORY}


# ---- changes of which only one can be made ----


def sharding():
    """Return the ladder of stage 1 and stage 3 of ZeRO."""
    known = ladders(metrics(flags=replace(PLAIN, ddp=True), ranks=2), ())
    return next(ladder for ladder in known if remedy_name(ladder[0]) == "zero-1-2")


def test_only_allowed_remedies_are_tried():
    (first, second), allowed = sharding(), (Safety.EXACT, Safety.MEMORY)

    known, left_out = _sorted_out([(first, second)], allowed)
    assert known == [(first,)]
    assert [left.split(":")[0] for left in left_out] == ["zero-3-fsdp"]
    assert "--allow numerics" in left_out[0]
    assert _sorted_out([(first, second)], (*allowed, Safety.NUMERICS)) == ([(first, second)], ())
    assert _sorted_out([(second,)], allowed) == ([], left_out)


@pytest.mark.parametrize(
    ("ending", "is_left"),
    [
        (Ending(fits=True, steps=40), True),
        (Ending(fits=False, steps=0, of_memory=True), True),
        (Ending(fits=False, steps=0, why="The program passes its own `process_group`."), False),
    ],
)
def test_weaker_change_is_tried_if_stronger_cannot_be_applied(ending, is_left):
    ladder = sharding()
    assert _that_can_be_made(ladder, lambda chosen: ending) == (ladder if is_left else ladder[:1])


def test_ladder_of_one_rule_is_not_probed():
    every = next(ladder for ladder in ladders(metrics(), ()) if len(ladder) == 4)
    assert _that_can_be_made(every, pytest.fail) == every
