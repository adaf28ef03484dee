"""What is padding in a batch, and what only looks like it."""

import sys
from collections import UserDict, namedtuple
from types import SimpleNamespace

import pytest
import torch
from programs import NUMPY_TORCH

from profiler.agent.hooks.padding import FRUITLESS, MOST_ELEMENTS, Paddings

LENGTHS = [10, 16, 12, 16]
ROOM = 20


class Watched:
    """An agent that keeps the facts and problems."""

    def __init__(self):
        self.facts, self.problems = {}, []
        self.agent = SimpleNamespace(
            torch=torch, account=lambda begin: None, on_tick=[], fact=self._fact, problem=self._problem
        )
        self.paddings = Paddings(self.agent)

    def _fact(self, kind, body):
        assert kind == "padding"
        self.facts[body["id"]] = dict(body)

    def _problem(self, source, error):
        self.problems.append(error)

    def of(self, *batches, rows=4):
        """Return the fact of a loader with these batches, all of which are inspected."""
        for batch in batches:
            self.paddings.look(1, batch, rows, 0)
        for callback in self.agent.on_tick:
            callback()
        assert not self.problems
        return self.facts.get(1)


def of(*batches, rows=4):
    return Watched().of(*batches, rows=rows)


def tokens(lengths=LENGTHS, room=ROOM, pad=0, left=False):
    """Return rows of 5, 6, 7 ... and padding."""
    made = torch.full((len(lengths), room), pad)
    for row, length in zip(made, lengths, strict=True):
        row[room - length :] = torch.arange(5, 5 + length)
        if not left:
            row.copy_(row.roll(length))
    return made


def mask(lengths=LENGTHS, room=ROOM):
    return (torch.arange(room) < torch.tensor(lengths)[:, None]).long()


SUMS = {
    "batches": 1,
    "real": 54,
    "longest": 64,
    "padded": 80,
    "real_pairs": 100 + 256 + 144 + 256,
    "padded_pairs": 4 * 400,
}
Batch = namedtuple("Batch", "tokens labels")
FRAMES = torch.randn(4, ROOM, 3).abs() + 0.1

TELLS = {
    "an attention mask": ({"input_ids": tokens(), "attention_mask": mask()}, "['attention_mask']"),
    "an attention mask of floats": ({"attention_mask": mask().float()}, "['attention_mask']"),
    "a mask whose ones are real tokens": ({"x": tokens(), "mask": mask()}, "['mask']"),
    "a mask whose ones are padding": ({"x": tokens(), "mask": mask() == 0}, "['mask']"),
    "a padding mask alone": ({"key_padding_mask": mask() == 0}, "['key_padding_mask']"),
    "an inverted padding mask": ({"x": tokens(), "pad_mask": mask() == 1}, "['pad_mask']"),
    "tokens": ({"input_ids": tokens()}, "['input_ids']"),
    "tokens in a tuple": ((tokens(), torch.zeros(4)), "[0]"),
    "tokens with another padding value": ((tokens(pad=50256), torch.zeros(4)), "[0]"),
    "tokens padded on the left": ((tokens(left=True), torch.zeros(4)), "[0]"),
    "tokens of 32 bits, from numpy": ([tokens().int().numpy()], "[0]"),
    "tokens in a named tuple": (Batch(tokens(), torch.zeros(4)), ".tokens"),
    "a batch of transformers": (UserDict(input_ids=tokens(), labels=tokens(pad=-100)), "['input_ids']"),
    "something nested": ([{"text": (tokens(),)}], "[0]['text'][0]"),
    "frames of zeros": ((FRAMES * mask()[:, :, None], torch.zeros(4)), "[0]"),
}


@pytest.mark.parametrize(("batch", "told_by"), TELLS.values(), ids=TELLS)
def test_padding_is_recognized_by(batch, told_by):
    assert of(batch) == {"id": 1, "told_by": f"batch{told_by}", **SUMS}


SQUARE = tokens([*range(1, 21)], 20)
NOTHING = {
    "features": torch.randn(4, ROOM),
    "random integers": torch.randint(0, 1000, (4, ROOM), generator=torch.Generator().manual_seed(0)),
    "black pixels at the end of rows and elsewhere": torch.tensor([[3, 0, 9, 0, 7, 6, 5, 4, 8, 0, 0]] * 4),
    "ones, then zeros": mask(),
    "flags": {"flags": mask()},
    "a causal mask": {"mask": torch.ones(20, 20).tril()},
    "a causal mask beside tokens": {"x": SQUARE, "src_mask": torch.ones(20, 20).tril()},
    "images with black borders": torch.nn.functional.pad(torch.rand(4, 12, 12), (0, 0, 4, 4)),
    "images cut off at the same line": torch.nn.functional.pad(torch.rand(4, 12, 12), (0, 0, 0, 8)),
    "a mask of some tokens": {"mask": torch.tensor([[0, 1, 0, 0, 1, 0, 1, 1, 0, 1]] * 4)},
    "a mask that could be either": {"mask": mask()},
    "an inverted padding mask alone": {"pad_mask": mask([10, 16, 12, 15])},
    "a mask of the loss": {"loss_mask": mask(), "labels": tokens(pad=-100)},
    "two values at the ends": torch.cat([tokens(pad=1), tokens(pad=2)]),
    "packed sequences": torch.cat([tokens(room=17), tokens()], 1),
    "rows of seven": tokens([3, 4, 5, 6], 7),
    "time first": tokens(room=ROOM).T.contiguous(),
    "a row of only padding": tokens([0, 3, 4, 12]),
    "more elements than are read": torch.zeros(2, MOST_ELEMENTS, dtype=torch.long),
    "16-bit floats that numpy does not support": torch.randn(4, ROOM, 3, dtype=torch.bfloat16),
    "another device": torch.empty(4, ROOM, device="meta"),
    "sparse": torch.eye(16).to_sparse(),
    "a tensor with gradients": torch.randn(4, ROOM, 3, requires_grad=True),
    "nested": torch.nested.nested_tensor([torch.ones(9), torch.ones(12)], layout=torch.jagged),
    "words": [["a"] * 9] * 4,
    "nothing": None,
}


@pytest.mark.parametrize("batch", NOTHING.values(), ids=NOTHING)
def test_no_padding_is_recognized_in(batch):
    assert of([batch], rows=8) is None


def test_time_first_batches_are_recognized_by_loader_batch_size():
    batch = tokens([16] * 2 + [12] * 6, 16).T.contiguous()

    assert of(batch, rows=8) is None


def test_full_mask_shows_that_there_is_no_padding():
    fact = of({"attention_mask": torch.ones(4, ROOM)})

    assert (fact["real"], fact["padded"]) == (80, 80)


def test_later_batches_are_counted_by_the_same_tensor_as_the_first():
    full = torch.arange(80).reshape(4, 20) + 5
    fact = of(tokens(), full, {"other": full}, (tokens([16, 16], 16),))

    assert fact == {
        **{
            "id": 1,
            "told_by": "batch",
            "batches": 2,
            "real": 54 + 80,
            "longest": 64 + 80,
            "padded": 160,
        },
        **{"real_pairs": 756 + 1600, "padded_pairs": 3200},
    }


def test_padding_contradicted_by_a_later_batch_is_retracted():
    inside = tokens()
    inside[0, 3] = 0
    watched = Watched()

    assert watched.of(tokens())["real"] == 54
    assert watched.of(inside) == {"id": 1}
    assert watched.of(tokens()) == {"id": 1}, "it is not looked at again"


def test_loader_without_padding_is_no_longer_checked():
    watched = Watched()
    watched.of(*[torch.randn(4, 8)] * FRUITLESS)

    assert watched.of(tokens()) is None
    assert watched.agent.fetch_due == sys.maxsize


def test_padding_checks_take_one_500th_of_the_time(monkeypatch):
    """Each look takes 1 ms here; the first look is free."""
    now = 0
    monkeypatch.setattr("profiler.agent.hooks.padding.clock", lambda: now)
    watched = Watched()

    def batches_after(milliseconds):
        nonlocal now
        begin = milliseconds * 10**6
        now = begin + 10**6
        if begin >= watched.paddings.due:
            watched.paddings.look(1, tokens(), 4, begin)
        for callback in watched.agent.on_tick:
            callback()
        return watched.facts[1]["batches"]

    assert [batches_after(ms) for ms in (0, 1, 2, 499, 502, 999, 1000)] == [1, 2, 2, 2, 3, 3, 4]


def test_failing_padding_check_is_reported_and_ends_checking(monkeypatch):
    def fail(*given):
        raise RuntimeError("not now")

    watched = Watched()
    monkeypatch.setattr(watched.paddings, "_count", fail)
    watched.paddings.look(1, {}, 4, 0)

    assert watched.paddings.due == watched.agent.fetch_due == sys.maxsize
    assert [str(error) for error in watched.problems] == ["not now"]


PADDED = """
import torch
from torch.utils.data import DataLoader
torch.set_num_threads(1)
torch.manual_seed(0)
lengths = [5 + 13 * n % 60 for n in range(160)]
data = [torch.nn.functional.pad(torch.arange(1, 1 + length), (0, 64 - length)) for length in lengths]
model = torch.nn.Sequential(torch.nn.Embedding(99, 8), torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(3):
    for batch in DataLoader(data, 8):
        for _ in range(4): loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
print(sum(lengths) / 160 / 64, loss.item())
"""


def test_padding_of_a_real_program_is_measured_without_side_effects(run_both, script):
    plain, profiled = run_both(script(NUMPY_TORCH + PADDED))

    assert profiled.out == plain.out
    assert not {"padding", "dataloader"} & set(profiled.problems)
    (fact,) = profiled.facts("padding")
    assert fact.told_by == "batch"
    assert fact.batches >= 1  # as many as the time budget allows
    assert fact.padded == 64 * 8 * fact.batches
    assert fact.real < fact.longest < fact.padded
    assert fact.real / fact.padded == pytest.approx(float(plain.out.split()[0]), abs=0.35)
