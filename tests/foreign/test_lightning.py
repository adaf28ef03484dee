"""The Trainer of Lightning: forward and backward run inside the optimizer's step, as its closure."""

import pytest

from profiler.schema import TAG_CHECKPOINT, TAG_EVALUATION

pytestmark = pytest.mark.foreign("lightning")

LIGHTNING = """
import lightning

class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    def forward(self, inputs): return self.net(inputs)
    def training_step(self, batch, index):
        loss = nn.functional.cross_entropy(self(batch[0]), batch[1])
        self.log("loss", loss, prog_bar=True)
        return loss
    def validation_step(self, batch, index):
        self.log("val_loss", nn.functional.cross_entropy(self(batch[0]), batch[1]))
    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3, fused=True)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 120)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

class Losses(lightning.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        if index % 20 == 0: tell(trainer.global_step, outputs["loss"].item())
    def on_validation_epoch_end(self, trainer, module):
        tell(trainer.global_step, trainer.callback_metrics["val_loss"].item())

def data(samples):
    return Rows(torch.randn(samples, 64), torch.randint(0, 10, (samples,)))

if __name__ == "__main__":
    model = Classifier()
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=3, profiler="simple", callbacks=[Losses()], gradient_clip_val=1.0,
        accumulate_grad_batches=int(sys.argv[1]),
    )
    trainer.fit(model, DataLoader(data(3840), 32, collate_fn=tuple), DataLoader(data(640), 64, collate_fn=tuple))
    tell(trainer.global_step, total(model))
"""


@pytest.mark.parametrize("accumulated", [1, 2])
def test_lightning_trainer_is_recorded(judge, accumulated):
    found = judge(LIGHTNING, accumulated)
    steps = found.of(0)
    epoch = 120 // accumulated

    assert [step.micro_steps for step in steps] == [float(accumulated)] * 3 * epoch
    assert sum(step.batches for step in steps) == 360
    # Before training, as a sanity check, and after each epoch; the last one belongs to no step.
    for tag in (TAG_EVALUATION, TAG_CHECKPOINT):
        assert [step.index for step in steps if step.tags & tag][-2:] == [epoch, 2 * epoch]
    assert all(step.forward > 0 and step.backward > 0 and step.optimizer > 0 for step in steps)
    assert {fact.training for fact in found.ran.facts("loader")} == {True, False}
    (optimizer,) = found.ran.facts("optimizer")
    (model,) = found.ran.facts("model")
    assert (optimizer.name, optimizer.parameters) == ("AdamW", model.parameters)
    assert found.flags()["evaluation_grad"] is False
    assert (model.name, model.wrappers) == ("Classifier", ())
    assert (optimizer.driven_by, optimizer.place.via) == (("lightning",), ())
    (call,) = found.ran.facts("call")
    assert (call.name, call.settings["profiler"]) == ("Trainer", '"simple"')
    assert (model.variable, model.place.line < call.place.line) == ("model", True)
