"""The operator table of small traces made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from traces_made import GEMM, KERNEL, MAIN, NCCL, Made

from profiler.importers import operators
from profiler.importers.analysis import analyze
from profiler.schema import REST

BF16 = ["c10::BFloat16", "c10::BFloat16"]
ENGINE = MAIN + 1


def shaped(*dims, types=BF16, values=None):
    given = {"Input Dims": [list(each) for each in dims], "Input type": list(types)}
    return given if values is None else {**given, "Concrete Inputs": values}


def training():
    """Return a step of two layers, each a module around aten::linear; backward on the engine's thread; an optimizer."""
    made = Made()
    made.step(0, 0, 400)
    made.host("nn.Module: Model_0", 0, 100, "python_function")
    made.host("model.py(3): forward", 1, 99, "python_function")
    for number, at in enumerate((10, 50)):
        made.host(f"nn.Module: Layer_{number}", at, at + 30, "python_function")
        made.host("aten::linear", at + 1, at + 20)
        made.host("aten::mm", at + 2, at + 12, **shaped((8, 16), (16, 4)))
        made.gpu(GEMM, at + 20, at + 40, (at + 3, at + 5))
    made.host("autograd::engine::evaluate_function: MmBackward0", 110, 150, thread=ENGINE)
    made.host("MmBackward0", 111, 149, thread=ENGINE)
    made.host("aten::mm", 112, 140, thread=ENGINE, **shaped((16, 8), (8, 4)))
    made.gpu(GEMM, 160, 200, (113, 116), thread=ENGINE)
    made.host("Optimizer.step#SGD.step", 200, 260, "user_annotation")
    made.host("aten::add_", 210, 220, **shaped((8, 4), (8, 4)))
    made.gpu(KERNEL, 230, 235, (211, 214))
    made.gpu(KERNEL, 300, 310, (270, 280))  # outside any operator
    return made


@pytest.fixture
def rows(tmp_path):
    return lambda made: analyze(made.write(tmp_path / "t.json")).operators


def test_rows_have_module_path_phase_and_work(rows):
    found = {(row.name, row.phase): row for row in rows(training())}

    forward = found["aten::mm", "forward"]
    assert forward.path == ("Model", "Layer", "aten::linear")  # two layers, one row
    assert (forward.calls, forward.kernels, forward.kernel, forward.kind) == (2, 2, GEMM, "matmul")
    assert (forward.inputs, forward.dtype, forward.arithmetic) == (((8, 16), (16, 4)), "bf16", "bf16")
    assert forward.total == pytest.approx(40e-6)
    assert forward.host == pytest.approx(20e-6)
    assert (forward.flop, forward.bytes) == (2 * 2 * 8 * 16 * 4, 2 * 2 * (8 * 16 + 16 * 4 + 8 * 4))
    backward = found["aten::mm", "backward"]
    assert (backward.path, backward.calls) == (("MmBackward0",), 1)
    assert found["aten::add_", "optimizer"].kind == "optimizer"
    alone = found[KERNEL, None]
    assert (alone.path, alone.host, alone.flop, alone.bytes) == ((), None, None, None)


def test_backward_node_gets_module_path_of_its_forward_pass(rows):
    made = training()
    for name, number in (("aten::mm", 7), ("autograd::engine::evaluate_function: MmBackward0", 7), ("aten::add_", 7)):
        event = next(each for each in made.events if each["name"] == name)
        event["args"] |= {"Sequence number": number if name != "aten::add_" else 8}
    found = {(row.name, row.phase): row for row in rows(made)}

    assert found["aten::mm", "backward"].path == ("Model", "Layer", "MmBackward0")
    assert found["aten::mm", "forward"].path == ("Model", "Layer", "aten::linear")


@pytest.mark.parametrize("number", [8, -1, "7", None])
def test_backward_node_without_matching_sequence_number_gets_no_module(rows, number):
    made = training()
    next(each for each in made.events if each["name"] == "aten::mm")["args"] |= {"Sequence number": 7}
    node = next(each for each in made.events if "evaluate_function" in each["name"])
    node["args"] |= {"Sequence number": number}

    assert {row.path for row in rows(made) if row.phase == "backward"} == {("MmBackward0",)}


def test_gaps_count_only_late_launches(rows, tmp_path):
    found = analyze(training().write(tmp_path / "t.json"))

    after_the_last = 90e-6
    assert sum(row.gap for row in found.operators) == pytest.approx(found.window.idle_launch - after_the_last)
    assert {row.name: round(row.gap * 1e6) for row in found.operators if row.kernel == KERNEL} == {
        "aten::add_": 30,
        KERNEL: 65,
    }


def test_phase_is_unknown_without_backward_pass(rows):
    made = Made()
    made.host("aten::mm", 0, 10)
    made.gpu(GEMM, 20, 30, (1, 2))

    (row,) = rows(made)

    assert (row.phase, row.inputs, row.flop, row.calls) == (None, (), None, 1)


def test_excess_rows_are_summed_into_one(rows, monkeypatch):
    made = training()
    whole = rows(made)
    monkeypatch.setattr(operators, "MOST", 2)

    kept = rows(made)

    assert kept[0] == whole[0]
    assert (len(kept), kept[1].name) == (2, REST)
    for quantity in ("calls", "total", "kernels", "gap"):
        assert getattr(kept[1], quantity) == pytest.approx(sum(getattr(row, quantity) for row in whole[1:]))


def test_argument_values_split_rows_only_if_work_depends_on_them(rows):
    made = Made()
    query = [(2, 64, 8, 16)] * 3
    for number, causal in enumerate(("False", "True")):
        made.host("aten::_flash_attention_forward", 20 * number, 20 * number + 9,
                  **shaped(*query, types=BF16 * 2, values=[""] * 8 + [causal]))  # fmt: skip
        made.gpu("flash_fwd_kernel", 20 * number + 10, 20 * number + 19, (20 * number + 1, 20 * number + 2))
        made.host("aten::mul", 50 + 9 * number, 58 + 9 * number, **shaped((8,), (), values=["", str(number)]))
        made.gpu(KERNEL, 100 + number, 101 + number, (51 + 9 * number, 52 + 9 * number))

    assert sorted((row.name, row.calls) for row in rows(made)) == [
        ("aten::_flash_attention_forward", 1),
        ("aten::_flash_attention_forward", 1),
        ("aten::mul", 2),
    ]


def test_run_counts_consecutive_calls_only(rows):
    made, at = Made(), 0
    for name in ("aten::mm", "aten::mm", "aten::mm", "aten::add", "aten::mm"):
        made.host(name, at, at + 9, **shaped((8, 16), (16, 4)))
        for kernel in (GEMM, KERNEL):  # like a matmul and the kernel that sums its parts
            made.gpu(kernel, at + 2, at + 3, (at + 1, at + 2))
            at += 5

    assert {row.name: row.run for row in rows(made)} == {"aten::mm": 2, "aten::add": 1}


def test_collective_kernels_belong_to_their_launching_operator(rows):
    made = Made()
    made.host("c10d::allreduce_", 0, 20)
    made.host("record_param_comms", 1, 19, types=BF16)
    made.host("nccl:all_reduce", 2, 40, "user_annotation")  # ends later than the range that contains it
    made.gpu(NCCL, 30, 60, (3, 5), stream=20)

    (row,) = rows(made)

    assert (row.name, row.path, row.kind) == ("record_param_comms", ("c10d::allreduce_",), "communication")


def test_a_deep_path_keeps_its_innermost_names(rows):
    made = Made()
    for depth in range(operators.DEEPEST + 5):
        made.host(f"my::op{chr(97 + depth)}", depth, 100 - depth)
    made.gpu(KERNEL, 110, 120, (50, 51))

    (row,) = rows(made)

    assert len(row.path) == operators.DEEPEST
    assert row.path[-1] == "my::opt"


def test_secrets_in_names_are_hidden(rows):
    made = training()
    made.host("password=hunter2secret", 5, 95, "user_annotation")

    assert "hunter2secret" not in str([replace(row, kernel="") for row in rows(made)])
