"""The operators of TraceLens (AMD) on the same traces, or why they differ.

Its tables lie in a folder for each trace, which PROFILE_TRAIN_TRACELENS names: ops_summary.csv, GEMM.csv, and so on.

Where the two differ, and who is right:

- A copy computes nothing: TraceLens counts an operation for each element of aten::copy_, we count none.
- aten::convolution of TraceLens includes what its callees launch; we list the operator that launched, such as
  aten::cudnn_convolution and the aten::add_ of the bias. Both are right; the sums over the callees agree.
- The same holds for attention: TraceLens' table names aten::_scaled_dot_product_flash_attention, whose kernels
  aten::_flash_attention_forward launches. Operations agree.
- TraceLens adds the bias of aten::addmm to its operations: one for each element of the result, below 1 % from an inner
  dimension of 50 on. torch.utils.flop_counter counts as we do.
- TraceLens lets a normalization move six vectors as long as a row; we count the weight and the bias, which are all
  that its inputs hold. That is up to 3 % for short rows.
- TraceLens lists operators on the host, too, such as an aten::copy_ that converts before it is sent; we do not.
- Interpolation (aten::upsample_*) has a model in TraceLens, and none here.
- TraceLens adds up the whole trace. We leave out the first of several steps, in which the GPU still does older work.
- TraceLens lists operators that activation checkpointing runs again in tables of their own; we add both runs.
- TraceLens names the operators of a replayed CUDA graph by a second trace, taken at its capture; we list its kernels.
- TraceLens counts nine operations for each element in the backward pass of a batch normalization; we count eight.
- A tensor of no dimensions does not change the dtype of a product; TraceLens lets one in fp32 double the bytes of bf16.
"""

from __future__ import annotations

import ast
import csv
import os
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
from traces_real import FOLDER

from profiler.importers.analysis import analyze
from profiler.schema import Operator

TABLES = os.environ.get("PROFILE_TRAIN_TRACELENS", "")
NAMES = sorted(path.name for path in Path(TABLES).iterdir() if path.is_dir()) if TABLES and FOLDER else []
CATEGORIES = {"GEMM": {"matmul"}, "NORM_fwd": {"normalization"}}
"""TraceLens categories that consist of the same operators as our kinds."""
LAUNCHES = {
    "aten::_scaled_dot_product_flash_attention": ("aten::_flash_attention_forward",),
    "aten::convolution": ("aten::cudnn_convolution", "aten::miopen_convolution"),
    "aten::layer_norm": ("aten::native_layer_norm",),
    "aten::batch_norm": ("aten::native_batch_norm",),
    "aten::linalg_norm": ("aten::linalg_vector_norm",),
}
"""By caller, which TraceLens' tables by kind list: the operators that launch its work."""
NEAR = 0.01
NORMALIZATION_BYTES = 0.03

pytestmark = [
    pytest.mark.compare,
    pytest.mark.skipif(
        not NAMES, reason="PROFILE_TRAIN_TRACELENS and PROFILE_TRAIN_TRACES are not folders with tables and traces"
    ),
]


@cache
def ours(name: str) -> tuple[Operator, ...]:
    return analyze(Path(FOLDER) / f"{name}.json.gz").operators


def table(name: str, kind: str) -> list[dict[str, str]]:
    csv.field_size_limit(1 << 24)
    path = Path(TABLES) / name / f"{kind}.csv"
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def summed(name: str) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for row in ours(name):
        found[row.name] += row.total * 1e6
    return found


@pytest.mark.parametrize("name", NAMES)
def test_gpu_time_by_operator_matches_tracelens(name):
    theirs = {row["name"]: float(row["total_direct_kernel_time_sum"]) for row in table(name, "ops_summary")}

    assert {each: summed(name)[each] for each in theirs} == pytest.approx(theirs, rel=NEAR)
    assert set(summed(name)) == set(theirs)


@pytest.mark.parametrize("name", NAMES)
def test_calls_by_operator_match_tracelens(name):
    found: dict[str, int] = defaultdict(int)
    for row in ours(name):
        found[row.name] += row.calls

    assert found == {row["name"]: int(row["Count"]) for row in table(name, "ops_summary")}


@pytest.mark.parametrize("name", NAMES)
def test_gpu_time_by_category_matches_tracelens(name):
    theirs = {row["op category"]: float(row["total_direct_kernel_time_ms"]) * 1e3
              for row in table(name, "ops_summary_by_category")}  # fmt: skip

    assert sum(summed(name).values()) == pytest.approx(sum(theirs.values()), rel=NEAR)
    for category, kinds in CATEGORIES.items():
        if category in theirs:
            listed = {row["name"] for row in table(name, "ops_summary") if category in row["Categories"]}
            found = [row for row in ours(name) if row.name in listed]
            assert sum(row.total for row in found) * 1e6 == pytest.approx(theirs[category], rel=NEAR)
            assert {row.kind for row in found} == kinds


@pytest.mark.parametrize("name", NAMES)
def test_gpu_time_by_operator_and_shapes_matches_tracelens(name):
    theirs: dict[tuple[object, ...], float] = defaultdict(float)
    for row in table(name, "ops_unique_args"):
        if time := float(row["total_direct_kernel_time_sum"] or 0):
            theirs[row["name"], _shapes(ast.literal_eval(row["Input Dims"]))] += time
    found: dict[tuple[object, ...], float] = defaultdict(float)
    for row in ours(name):
        found[row.name, row.inputs] += row.total * 1e6

    assert found == pytest.approx(theirs, rel=NEAR)


KINDS = ("GEMM", "SDPA_fwd", "CONV_fwd", "Normalization", "BinaryElementwise", "UnaryElementwise", "Reduce_fwd")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_operations_and_bytes_match_tracelens(name, kind):
    if not (Path(TABLES) / name / f"{kind}.csv").is_file():
        pytest.skip(f"{name} has no {kind}")
    by_shape: dict[tuple[object, ...], list[Operator]] = defaultdict(list)
    for row in ours(name):
        by_shape[row.name, row.inputs].append(row)
    compared = 0
    for row in table(name, kind):
        if not float(row["Kernel Time (µs)_sum"] or 0):
            continue
        launches = LAUNCHES.get(row["name"])
        flop = float(row["GFLOPS_first"]) * 1e9
        moved = float(row["Data Moved (MB)_first"]) * 2**20 if row["Data Moved (MB)_first"] else None
        if launches is None:
            found = by_shape[row["name"], _shapes(ast.literal_eval(row["Input Dims_first"]))]
        else:
            # The launching operator's arguments have another order; its operations must be the same.
            found = [each for each in ours(name) if each.name in launches and each.flop is not None
                     and each.flop / each.calls == pytest.approx(flop, rel=NEAR)]  # fmt: skip
        assert found, row["name"]
        modeled = [each.flop / each.calls for each in found if each.flop is not None]
        assert modeled == pytest.approx([flop] * len(modeled), rel=NEAR)
        sizes = [each.bytes / each.calls for each in found if each.bytes is not None]
        near = NORMALIZATION_BYTES if kind == "Normalization" else NEAR
        # Equal shapes may have several types, such as copies that convert.
        assert moved is None or not sizes or any(size == pytest.approx(moved, rel=near) for size in sizes)
        compared += sum(each.flop is not None or each.bytes is not None for each in found)
    assert compared


def _shapes(dims: object) -> tuple[tuple[int, ...], ...]:
    """Return shapes in our form, without those of lists of tensors."""
    assert isinstance(dims, list | tuple)
    return tuple(
        tuple(each) if isinstance(each, list | tuple) and all(type(n) is int for n in each) else () for each in dims
    )
