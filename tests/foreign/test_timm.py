"""A training loop in timm's style: with torch's parts instead of timm's, and with timm's own.

timm is not in the extra `foreign`: the torchvision that it needs does not exist for every torch, and one that does not
match breaks the import of transformers.
"""

import pytest

from profiler.schema import TAG_CHECKPOINT, TAG_EVALUATION

TIMM = """
if torch.version.cuda is None:
    # torchvision's builds for CUDA bring torch without it no operators, and these it names as it is imported.
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"): library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
import timm.data, timm.loss, timm.optim, timm.scheduler, timm.utils

timm.utils.random_seed(0)  # mixup draws from numpy

def parts():
    model = timm.create_model("test_resnet", num_classes=10).to(memory_format=torch.channels_last)
    optimizer = timm.optim.create_optimizer_v2(model, opt="sgd", lr=0.05, momentum=0.9)
    scheduler, _ = timm.scheduler.create_scheduler_v2(
        optimizer, sched="cosine", num_epochs=EPOCHS, warmup_epochs=0, step_on_epochs=False, updates_per_epoch=BATCHES
    )
    mixup = timm.data.Mixup(mixup_alpha=0.8, num_classes=10)
    average = timm.utils.ModelEmaV3(model, decay=0.99)
    clip = lambda: timm.utils.dispatch_clip_grad(model.parameters(), 1.0)
    return model, optimizer, scheduler.step_update, mixup, timm.loss.SoftTargetCrossEntropy(), average, clip
"""

TORCH = """
import copy

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 24, 3, 2, 1)
        self.stages = nn.Sequential(*(self.stage(24) for _ in range(3)))
        self.head = nn.Linear(24, 10)
    def stage(self, width):
        return nn.Sequential(nn.Conv2d(width, width, 3, 1, 1), nn.BatchNorm2d(width), nn.ReLU())
    def forward(self, images): return self.head(self.stages(self.stem(images)).mean((2, 3)))

class Average(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.module = copy.deepcopy(model).eval().requires_grad_(False)
    def update(self, model):
        with torch.no_grad():
            for mine, its in zip(self.module.state_dict().values(), model.state_dict().values()):
                mine.copy_(0.99 * mine + 0.01 * its if mine.is_floating_point() else its)
    def forward(self, images): return self.module(images)

def mixup(images, targets):
    share = torch.distributions.Beta(0.8, 0.8).sample().item()
    targets = nn.functional.one_hot(targets, 10).float()
    return share * images + (1 - share) * images.flip(0), share * targets + (1 - share) * targets.flip(0)

def parts():
    model = Net().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * BATCHES)
    clip = lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return model, optimizer, lambda updates: cosine.step(), mixup, nn.CrossEntropyLoss(), Average(model), clip
"""

LOOP = """
EPOCHS, BATCHES, VALIDATED = 3, 24, 6

def images(batches):
    return Rows(torch.randn(batches * 16, 3, 64, 64), torch.randint(0, 10, (batches * 16,)))

def validate(model, loader):
    model.eval()
    right = 0
    with torch.no_grad():
        for inputs, targets in loader:
            right += (model(inputs.contiguous(memory_format=torch.channels_last)).argmax(1) == targets).sum().item()
    return right

if __name__ == "__main__":
    model, optimizer, schedule, mixup, criterion, average, clip = parts()
    how = {"num_workers": 1, "persistent_workers": True, "drop_last": True, "collate_fn": tuple}
    training = DataLoader(images(BATCHES), 16, shuffle=True, **how)
    validation = DataLoader(images(VALIDATED), 16, collate_fn=tuple)
    updates = 0
    for epoch in range(EPOCHS):
        model.train()
        for inputs, targets in training:
            inputs, targets = mixup(inputs, targets)
            loss = criterion(model(inputs.contiguous(memory_format=torch.channels_last)), targets)
            optimizer.zero_grad()
            loss.backward()
            clip()
            optimizer.step()
            average.update(model)
            updates += 1
            schedule(updates)
        tell(epoch, loss.item(), optimizer.param_groups[0]["lr"], validate(model, validation))
        tell(validate(average.module, validation))
        torch.save({"model": model.state_dict(), "average": average.state_dict()}, "last.pt")
    tell(total(model), total(average))
"""


FOREIGN = pytest.mark.foreign
TIMMS = pytest.mark.foreign("timm", "torchvision")


@pytest.mark.parametrize(
    "parts", [pytest.param(TORCH, id="torch", marks=FOREIGN), pytest.param(TIMM, id="timm", marks=TIMMS)]
)
def test_timm_training_loop_is_recorded(judge, parts):
    found = judge(parts + LOOP, light=parts is TORCH)
    steps = found.of(0)

    assert [(step.micro_steps, step.batches) for step in steps] == [(1.0, 1.0)] * 72
    for tag in (TAG_EVALUATION, TAG_CHECKPOINT):
        assert [step.index for step in steps if step.tags & tag] == [24, 48]
    assert all(step.forward > 0 and step.backward > 0 and step.optimizer > 0 for step in steps)
    assert {(fact.training, fact.num_workers) for fact in found.ran.facts("loader")} == {(True, 1), (False, 0)}
    (optimizer,) = found.ran.facts("optimizer")
    (model,) = found.ran.facts("model")  # its average is only evaluated
    assert (optimizer.name, optimizer.parameters) == ("SGD", model.parameters)
    assert found.flags()["evaluation_grad"] is False
    assert [worker.worker_id for worker in found.ran.workers] == [0]
