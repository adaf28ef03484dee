"""What the source around a line shows."""

import pytest

from advisor.runs.syntax import Syntax, syntax

LINES = """\
import torch

@torch.no_grad()
def score(model, rows):
    total = 0
    for row in rows.tolist():
        total += model(row.unsqueeze(0)).item()
    return total

def batches():
    while True:
        yield [clean(text) for text in texts]

def once(x):
    with torch.inference_mode():
        return model(x)
    gc.collect()
    return x[None]
""".splitlines()


@pytest.mark.parametrize(
    ("number", "loop", "no_grad", "generator", "one_row"),
    [
        (5, False, True, False, True),
        (6, False, True, False, True),  # the iterable is evaluated only once
        (7, True, True, False, True),
        (12, True, False, True, False),
        (16, False, True, False, True),
        (17, False, False, False, True),
    ],
)
def test_line_is_described_by_its_surroundings_in_function(number, loop, no_grad, generator, one_row):
    found = syntax(LINES, number)
    assert found is not None
    assert (found.loop, found.no_grad, found.generator, found.one_row) == (loop, no_grad, generator, one_row)


@pytest.mark.parametrize(
    ("statement", "recurrent"),
    [
        ("h = torch.tanh(x[t] + h @ u)", True),
        ("h, c = cell(x[t], (h, c))", True),
        ("h = (1 - f) * h + f * x[t]", True),
        ("x[t] = torch.tanh(x[t - 1])", True),
        ("x, self.h = x[t], self.h @ u", True),
        ("mask[t, u] = t - u", False),
        ("total = total + loss(x[t])", False),
        ("total += loss(x[t])", False),
        ("found.append(x[t] * 2)", False),
        ("y = x[t] * 2", False),
    ],
)
def test_distinguishes_recurrence_from_sum(statement, recurrent):
    lines = ["def f(x):", "    for t in range(9):", f"        {statement}", "    return x"]
    found = syntax(lines, 3)
    assert (found.loop, found.recurrent) == (True, recurrent)
    assert not syntax(lines, 4).recurrent


@pytest.mark.parametrize(
    ("loop", "parameters"),
    [
        ("for name, p in model.named_parameters():", True),
        ("for a, b in zip(old.parameters(), new.parameters()):", True),
        ("for p in model.parameters(): total = sum(", False),
        ("for row in batch:", False),
    ],
)
def test_recognizes_innermost_loop_over_parameters(loop, parameters):
    inner = "abs(x) for x in p.tolist())" if loop.endswith("(") else "x = p.norm()"
    assert syntax(["def f(model):", f"    {loop}", f"        {inner}"], 3).parameters is parameters


def test_while_condition_is_part_of_loop():
    lines = ["def f(x):", "    while x > 1:", "        x -= 1", "    return x"]
    assert [syntax(lines, number).loop for number in (2, 3, 4)] == [True, True, False]


def test_call_is_listed_with_and_without_module():
    assert syntax(LINES, 17).calls == {"collect", "gc.collect"}


@pytest.mark.parametrize(("lines", "number"), [(["def ("], 1), (["\0"], 1), (["x = 1"], 0), (["x = 1"], 2)])
def test_invalid_python_or_line_gives_none(lines, number):
    assert syntax(lines, number) is None


def test_line_outside_functions_has_empty_syntax():
    assert syntax(["x = 1"], 1) == Syntax()
