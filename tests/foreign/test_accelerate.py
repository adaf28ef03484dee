"""Hugging Face accelerate, started with Python and by its own launcher."""

import pytest

pytestmark = pytest.mark.foreign("accelerate")

ACCELERATE = """
from accelerate import Accelerator

if __name__ == "__main__":
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 80)
    data = Rows(torch.randn(5120, 64), torch.randn(5120, 1))
    model, optimizer, loader, scheduler = accelerator.prepare(
        model, optimizer, DataLoader(data, 32, shuffle=True, collate_fn=tuple), scheduler
    )
    for epoch in range(2):
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(inputs), targets)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        tell(accelerator.process_index, epoch, loss.item(), optimizer.param_groups[0]["lr"])
    accelerator.save_state("state")
    tell(accelerator.process_index, total(model))
    accelerator.end_training()
"""


def check(found, rank, batches):
    """Check a rank with this number of batches; one is fetched ahead of the one that is trained on."""
    steps = found.of(rank)
    assert len(steps) == batches / 4
    assert [step.micro_steps for step in steps] == [4.0] * len(steps)
    assert sum(step.batches for step in steps) == batches
    assert all(step.forward > 0 and step.backward > 0 and step.optimizer > 0 for step in steps)


def test_accelerate_gradient_accumulation_is_recorded(judge):
    found = judge(ACCELERATE)

    check(found, 0, batches=320)
    (loader,) = found.training
    assert (loader.dataset, loader.num_workers) == ("Rows", 0)
    (model,) = found.ran.facts("model")
    assert (model.name, model.wrappers) == ("Sequential", ())
    (optimizer,) = found.ran.facts("optimizer")
    assert (optimizer.name, optimizer.parameters) == ("AdamW", model.parameters)
    assert (optimizer.driven_by, optimizer.place.via) == (("accelerate",), ())
    assert (loader.place.via, loader.place.line > optimizer.place.line) == ((), True)  # not prepare's, which copies it
    assert (model.variable, optimizer.variable) == ("model", "optimizer")
    (call,) = found.ran.facts("call")
    assert (call.name, call.settings) == ("Accelerator", {"cpu": "True", "gradient_accumulation_steps": "4"})
    assert not found.ran.workers


@pytest.mark.parametrize(
    ("ranks", "launcher"),
    [
        (1, "accelerate launch --cpu --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no"),
        (2, "torchrun --standalone --nproc-per-node 2"),
    ],
    ids=["accelerate", "torchrun"],
)
def test_ranks_of_each_launcher_are_recorded(judge, ranks, launcher):
    found = judge(ACCELERATE, launcher=launcher.split())

    assert sorted((rank.rank, rank.world_size) for rank in found.ran.ranks) == [(n, ranks) for n in range(ranks)]
    for rank in range(ranks):
        check(found, rank, batches=320 // ranks)
    for model in found.ran.facts("model"):
        assert (model.name, model.wrappers) == ("Sequential", ("DistributedDataParallel",) * (ranks > 1))
    assert all(flags.ddp is (ranks > 1) for flags in found.ran.facts("flags"))
