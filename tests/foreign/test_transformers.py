"""The Trainer of Hugging Face transformers."""

import pytest

from profiler.schema import TAG_CHECKPOINT, TAG_EVALUATION

pytestmark = pytest.mark.foreign("transformers", "accelerate")

TRAINER = """
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

class Tokens(Dataset):
    def __init__(self, samples):
        self.ids = torch.randint(0, 128, (samples, 32))
    def __len__(self): return len(self.ids)
    def __getitem__(self, index): return {"input_ids": self.ids[index], "labels": self.ids[index]}

if __name__ == "__main__":
    workers = int(sys.argv[1])
    arguments = TrainingArguments(
        "out", seed=3, use_cpu=True, report_to=[], per_device_train_batch_size=4, per_device_eval_batch_size=8,
        gradient_accumulation_steps=2, num_train_epochs=2, eval_strategy="steps", eval_steps=30, save_steps=30,
        logging_steps=10, dataloader_num_workers=workers, dataloader_persistent_workers=workers > 0,
    )
    model = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=32, n_embd=96, n_layer=3, n_head=4))
    trainer = Trainer(model, arguments, train_dataset=Tokens(360), eval_dataset=Tokens(32))
    trainer.train()
    for entry in trainer.state.log_history:
        tell({name: value for name, value in entry.items() if "loss" in name or name in ("step", "grad_norm")})
    tell(trainer.evaluate()["eval_loss"], total(model))
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_transformers_trainer_is_recorded(judge, workers):
    found = judge(TRAINER, workers)
    steps = found.of(0)

    assert [step.micro_steps for step in steps] == [2.0] * 90
    # After 30 and 60 updates; the save at the very end belongs to no step.
    for tag in (TAG_EVALUATION, TAG_CHECKPOINT):
        assert [step.index for step in steps if step.tags & tag] == [30, 60]
    assert sum(step.batches for step in steps) == 180
    assert all(step.forward > 0 and step.backward > 0 and step.optimizer > 0 for step in steps)
    assert found.result["metrics"]["evaluation_share"]["value"] > 0
    (loader,) = found.training
    assert (loader.dataset, loader.num_workers) == ("Tokens", workers)
    assert any(fact.training is False for fact in found.ran.facts("loader"))
    (model,) = found.ran.facts("model")
    assert (model.name, model.block, model.blocks) == ("GPT2LMHeadModel", "GPT2Block", 3)
    (optimizer,) = found.ran.facts("optimizer")
    assert (optimizer.name, optimizer.module, optimizer.groups) == ("AdamW", "torch.optim.adamw", 2)
    assert optimizer.parameters == model.parameters
    # The Trainer creates what the program's TrainingArguments say.
    assert optimizer.driven_by[0] == "transformers"
    assert (optimizer.place.via[0], loader.place.via[0]) == ("transformers", "transformers")
    (call,) = found.ran.facts("call")
    assert (call.name, call.settings["gradient_accumulation_steps"]) == ("TrainingArguments", "2")
    assert (model.variable, call.place.line < model.place.line < optimizer.place.line) == ("model", True)
    assert found.flags()["evaluation_grad"] is False
    # The evaluation's loader has the same number of workers.
    assert {worker.worker_id for worker in found.ran.workers} == set(range(workers))
