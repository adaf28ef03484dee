"""Frameworks, two processes on two GPUs, and our own samples end and print the same with and without the profiler."""

import re
from pathlib import Path

import pytest

SAMPLES = sorted((Path(__file__).parents[2] / "samples").glob("*.py"))

TRAINER = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 256
    def __getitem__(self, index):
        tokens = torch.arange(32) * (index % 7 + 1) % 64
        return {"input_ids": tokens, "labels": tokens}

config = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
arguments = TrainingArguments(
    output_dir="ended", per_device_train_batch_size=8, max_steps=24, logging_steps=8, seed=0, bf16=True,
    gradient_accumulation_steps=2, report_to="none", save_steps=12, disable_tqdm=True,
    eval_strategy="steps", eval_steps=12,
)
trainer = Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Tokens(), eval_dataset=Tokens())
result = trainer.train()
print("trained", result.global_step, [sorted(row) for row in trainer.state.log_history])
"""

LIGHTNING = """
import lightning, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    def training_step(self, batch, index):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])
    def validation_step(self, batch, index):
        self.log("val_loss", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)

def data(samples):
    return DataLoader(TensorDataset(torch.randn(samples, 64), torch.randint(0, 10, (samples,))), batch_size=32)

lightning.seed_everything(0)
trainer = lightning.Trainer(
    accelerator="cuda", devices=1, max_epochs=2, precision="16-mixed", gradient_clip_val=1.0, logger=False,
    enable_progress_bar=False,
)
trainer.fit(Classifier(), data(640), data(64))
print("trained", trainer.global_step, trainer.callback_metrics["val_loss"].item())
"""

PARALLEL = """
import os, torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.distributed.init_process_group("nccl")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 10)).cuda()
model = DistributedDataParallel(model, device_ids=[rank])
optimizer = torch.optim.AdamW(model.parameters())
rows = TensorDataset(torch.randn(1280, 64), torch.zeros(1280, dtype=torch.long))
for x, y in DataLoader(rows, batch_size=32, sampler=DistributedSampler(rows)):
    loss = nn.functional.cross_entropy(model(x.cuda(non_blocking=True)), y.cuda(non_blocking=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if rank == 0:
    print("trained", loss.item())
torch.distributed.destroy_process_group()
"""

WORDS = {"transformers": TRAINER, "lightning": LIGHTNING}


@pytest.fixture
def alike(fake_gpu, tmp_path):
    """Return a function that runs a program plain and recorded, with windows, checks that all but times is equal, and
    returns what the program printed and the recorded run."""

    def run(*words, devices="A100:40"):
        gpu = fake_gpu(devices)
        folders = [tmp_path / name for name in ("plain", "recorded")]  # one must not find what the other saves
        for folder in folders:
            folder.mkdir()
        plain = gpu.run(*words, cwd=folders[0])
        assert plain.status == 0, plain.err.decode()
        recorded = gpu.record(*words, cwd=folders[1], options=("--no-report", "--budget", "0.5"))
        assert recorded.status == 0, recorded.err.decode()
        assert _without_times(recorded.out) == _without_times(plain.out)
        saved = [sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) for folder in folders]
        assert saved[0] == saved[1]
        for kind in ("contexts", "streams", "pinned"):
            assert recorded.live(kind) == plain.live(kind), kind
        assert recorded.counts["gemm"] == plain.counts["gemm"]
        return plain.out.decode(), recorded

    return run


def _without_times(out):
    """Replace what differs even between two plain runs."""
    return re.sub(r"('\w*(?:runtime|per_second)': )'?[\d.e-]+'?", r"\1...", out.decode())


@pytest.mark.parametrize("framework", WORDS)
def test_framework_trains_unchanged(alike, script, framework):
    pytest.importorskip(framework, reason=f"{framework} could not be installed")
    said, recorded = alike(script(WORDS[framework]))
    assert "trained" in said
    batches = {"transformers": 48, "lightning": 40}  # where a GradScaler skips an update, the next step has both
    assert sum(step.micro_steps * step.count for step in recorded.steps) == batches[framework]


def test_two_ranks_on_two_gpus_train_unchanged(alike, script):
    said, recorded = alike(
        "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script(PARALLEL),
        devices="A100:40,A100:40",
    )  # fmt: skip
    assert said.startswith("trained")
    assert len(recorded.processes) == 2


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_sample_trains_unchanged(alike, sample):
    said, _ = alike(sample, "--steps", "30")
    assert "loss" in said
