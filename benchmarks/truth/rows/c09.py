"""C09: texts of 16 to 512 tokens, most of them short, are all padded to 512."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset
from training import begin, steps

LONGEST, VOCABULARY, WIDTH, BATCH = 512, 1000, 128, 8


class Texts(Dataset):
    def __init__(self, count=800):
        lengths = (16 + (LONGEST - 16) * torch.rand(count) ** 3).long()
        self.texts = [torch.randint(1, VOCABULARY, (length,)) for length in lengths.tolist()]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return self.texts[index], index % 10


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, tokens, attention_mask):
        return self.head(self.encoder(self.token(tokens), src_key_padding_mask=attention_mask == 0)[:, 0])


def padded(samples, length):
    texts, labels = zip(*samples, strict=True)
    tokens = torch.zeros(len(texts), length, dtype=torch.long)
    for row, text in zip(tokens, texts, strict=True):
        row[: len(text)] = text
    return {"input_ids": tokens, "attention_mask": (tokens != 0).long(), "labels": torch.tensor(labels)}


def to_longest(samples):
    return padded(samples, LONGEST)


def to_longest_in_batch(samples):
    return padded(samples, max(len(text) for text, _ in samples))


class ByLength:
    """Batches of neighbors in length, in random order."""

    def __init__(self, texts):
        self.texts = texts

    def __iter__(self):
        order = sorted(range(len(self.texts)), key=lambda index: len(self.texts.texts[index]))
        batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
        yield from (batches[index] for index in torch.randperm(len(batches)).tolist())


def main():
    args, _ = begin(__doc__, model="mlp-16")
    texts = Texts()
    loader = DataLoader(texts, batch_size=BATCH, shuffle=True, num_workers=0, collate_fn=to_longest)
    if args.fixed:
        loader = DataLoader(texts, batch_sampler=ByLength(texts), num_workers=0, collate_fn=to_longest_in_batch)
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for _, batch in steps(loader, args, model):
        loss = cross_entropy(model(batch["input_ids"], batch["attention_mask"]), batch["labels"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
