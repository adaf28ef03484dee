"""A large part of the computation is spent on padding.

The sequences of a batch are padded to one length, and every layer also computes the padding; attention does so for
every pair of positions. If you batch sequences of similar length, and pad only to the longest one in the batch, the
cost follows the real lengths.

Sequences packed for a recurrent layer (`pack_padded_sequence`) do not count as padded.

Wrong when: the model skips padding in another way (nested tensors, variable-length attention), or needs a single shape
(CUDA graphs, `torch.compile` without dynamic shapes, some accelerators). In that case use a few fixed lengths.

Source: Krell et al.: Efficient Sequence Packing without Cross-contamination, 2021, https://arxiv.org/abs/2107.02027
Source: Hugging Face: group_by_length and dynamic padding, https://huggingface.co/docs/transformers/main_classes/trainer
"""

from advisor.metrics import Metrics, Threshold, attention, input, padding, settings
from advisor.models.effects import COMPUTE, Triple, divide
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, evidence, measure, python
from advisor.units import share

RULE = Rule("Avoid computing padding", Area.STALLS, Confidence.EMPIRICAL, difficulty=2, supersedes=("batch-raise",))

MIN_WASTE = Threshold(
    0.15, "Even batches of similar lengths have a few percent of padding; below this there is little to gain."
)

MIN_WASTE_OF_PAIRS = Threshold(
    0.10,
    "The limit if attention takes a large share of the step, because its cost grows with the square of the length.",
)

MUCH_ATTENTION = Threshold(0.30, "Above this share, most of the cost of padding is in attention (assumption).")

# Padded over real tokens in batches of similar lengths: pools of a hundred batches keep 2 to 5 % of padding.
LEFT = 1.05

# Share of the computation in attention if no kernels were recorded (assumption).
ATTENTION = 0.2

# Below this share, batches are already padded only to their longest sequence.
TO_THE_LONGEST = 0.02

COLLATE = """\
import torch
from torch.nn.utils.rnn import pad_sequence


def collate(samples):  # each: its tokens without padding, and a label
    tokens, labels = zip(*samples)
    lengths = torch.tensor([len(each) for each in tokens])
    tokens = pad_sequence(tokens, batch_first=True, padding_value=0)  # to the longest of this batch
    mask = torch.arange(tokens.shape[1]) < lengths[:, None]  # True: a token
    return tokens, mask, torch.as_tensor(labels)
"""

BUCKETS = """\
import random


class LikeLengths:
    \"\"\"Batches of sequences of similar length, different in every epoch, in random order.\"\"\"

    def __init__(self, lengths, batch_size, pool=100):
        self.lengths, self.size, self.pool = lengths, batch_size, pool * batch_size

    def __len__(self):
        return -(-len(self.lengths) // self.size)

    def __iter__(self):
        order = random.sample(range(len(self.lengths)), len(self.lengths))
        batches = []
        for start in range(0, len(order), self.pool):
            pool = sorted(order[start : start + self.pool], key=self.lengths.__getitem__)
            batches += [pool[at : at + self.size] for at in range(0, len(pool), self.size)]
        random.shuffle(batches)
        return iter(batches)


# lengths: the length of each sequence in the data set; instead of batch_size, shuffle and sampler:
# DataLoader(dataset, batch_sampler=LikeLengths(lengths, {size}), collate_fn=collate)
"""


def when(m: Metrics) -> Evidence | None:
    """If at least 15 % of the tokens in a batch are padding (10 % if attention takes at least 30 % of the
    computation), and the program packs no sequences,
    """
    if m.get(settings.packs_sequences):
        return None
    is_known = m.get(attention.attention_share) is not None
    attention_facts = (measure(m, attention.attention_share),) if is_known else ()
    has_much_attention = is_known and m[attention.attention_share] >= m[MUCH_ATTENTION]
    waste = measure(m, padding.padding_waste, ">=", MIN_WASTE_OF_PAIRS if has_much_attention else MIN_WASTE)
    note = f"{m[padding.padding].told_by} shows it in {m[padding.padding].batches} inspected batches"
    return evidence(waste, *attention_facts, note=note)


def then(m: Metrics, found: Evidence) -> Advice:
    """then pad sequences only to the longest in their batch, and batch sequences of similar length."""
    codes = [BUCKETS.replace("{size}", str(m[input.loader].batch_size or "batch_size"))]
    action = "Batch sequences of similar length"
    if m[padding.padding_beyond_longest] >= TO_THE_LONGEST:
        codes.insert(0, COLLATE)
        action = "Pad sequences only to the longest of their batch, and batch sequences of similar length"
    attention_share = m.get(attention.attention_share)
    origin = "as measured" if attention_share is not None else "assumed"
    attention_share = ATTENTION if attention_share is None else attention_share
    # The needed work is that of batches of similar lengths, at most that of the present batches.
    counts = m[padding.padding]
    tokens = counts.padded / min(counts.real * LEFT, counts.padded)
    pairs = counts.padded_pairs / min(counts.real_pairs * LEFT**2, counts.padded_pairs)
    return Advice(
        then=f"{action}: {share(m[padding.padding_waste])} of the tokens are padding.",
        changes=tuple(python(code, m[input.loader].place) for code in codes),
        basis="Forward and backward shrink in proportion to the number of tokens, in the best case to its square. "
        f"The expected value lies between the two, because attention takes {share(attention_share)} of the "
        f"computation, {origin}. The remaining padding is {share(LEFT - 1)} of the real tokens.",
        effect=divide(*COMPUTE, by=speedup(tokens, pairs, attention_share)),
        memory=0,
        risk="Low to medium: batches are less mixed, so keep shuffling within and between them, and weight the "
        "loss by real tokens. Shapes vary: mark them dynamic for torch.compile.",
    )


def speedup(tokens: float, pairs: float, attention: float) -> Triple:
    """Return the speed-up of a step that computes only the needed work: low, expected, high.

    `tokens` and `pairs` are padded over needed work, and `attention` is the share of the present time that grows with
    pairs. The ends are a step that depends only on tokens and one that depends only on pairs (Krell et al. measure both
    kinds).
    """
    expected = 1 / ((1 - attention) / tokens + attention / pairs)
    return (min(tokens, pairs), expected, max(tokens, pairs))
