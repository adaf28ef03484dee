"""Train a tiny GPT-2 in bfloat16 with the transformers Trainer, on tokens made here."""

import sys
import tempfile

import torch
from common import digest, say

try:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
except ImportError:
    sys.exit("transformers is not installed")


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        tokens = (torch.arange(128) * (index % 7 + 1)) % 512
        return {"input_ids": tokens, "labels": tokens}


config = GPT2Config(vocab_size=512, n_positions=128, n_embd=256, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder, per_device_train_batch_size=16, max_steps=200, logging_steps=20, bf16=True, seed=0,
        report_to="none", save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    torch.manual_seed(0)
    trainer = Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Tokens())
    trainer.train()
say(losses=digest(row["loss"] for row in trainer.state.log_history if "loss" in row))
