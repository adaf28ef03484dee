"""Operations and bytes of calls, computed by hand."""

from __future__ import annotations

import json

import pytest

from profiler.importers.arithmetic import _ATTENTIONS, _CONVOLUTIONS, Work, parse, work_of_call

BF16, FLOAT, LONG, HALF = "c10::BFloat16", "float", "long int", "c10::Half"
NO = Work(None, None)


def call(dims, types, values=()):
    return parse(*(json.dumps(each).encode() for each in (dims, types, values)))


SDPA, CONVOLUTION = "aten::_scaled_dot_product", "aten::convolution"
GRADIENTS = [[2, 6, 4, 4], [2, 3, 8, 8], [6, 3, 3, 3]]
HEADS, SHARED = [2, 8, 64, 16], [2, 2, 64, 16]
STRIDED = ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]

CASES = [
    # 2 x 3 x 5 x 4; (3x4 + 4x5 + 3x5) x 2 bytes
    ("aten::mm", [[3, 4], [4, 5]], [BF16, BF16], (), 120, 94),
    ("aten::addmm", [[5], [3, 4], [4, 5], [], []], [FLOAT, FLOAT, FLOAT, "Scalar", "Scalar"], (), 120, 208),
    ("aten::bmm", [[7, 3, 4], [7, 4, 5]], [HALF, HALF], (), 840, 658),
    ("aten::baddbmm", [[7, 3, 5], [7, 3, 4], [7, 4, 5]], [HALF] * 3, (), 840, 868),
    ("aten::linear", [[2, 3, 4], [5, 4], [5]], [FLOAT] * 3, (), 240, 4 * (24 + 20 + 5 + 30)),
    ("aten::_scaled_mm", [[3, 4], [4, 5], [], []], ["c10::Float8_e4m3fn"] * 2 + [FLOAT] * 2, (), 120, 12 + 20 + 30),
    ("aten::_int_mm", [[3, 4], [4, 5]], ["signed char"] * 2, (), 120, 12 + 20 + 60),
    ("aten::_grouped_mm", [[6, 4], [2, 4, 5], [2]], [BF16, BF16, "int"], (), 240, 2 * (24 + 40 + 30)),
    ("aten::mm", [[3, 4], [5, 4]], [BF16, BF16], (), None, None),
    ("aten::mm", [[3, 4], [4, 5]], ["", ""], (), 120, None),
    # Output 2 x 6 x 4 x 4: 2 x 2 x 16 x (6 x 3 x 3 x 3)
    (CONVOLUTION, [[2, 3, 8, 8], [6, 3, 3, 3], [6]], [FLOAT] * 3, STRIDED, 10368, 4 * (384 + 162 + 192)),
    ("aten::cudnn_convolution", [[2, 3, 8, 8], [6, 3, 3, 3]], [FLOAT] * 2, ["", "", "[1]", "[2]", "[1]"], 10368, 2952),
    # Depthwise: each of 6 channels alone
    ("aten::_conv_depthwise2d", [[2, 6, 8, 8], [6, 1, 3, 3], []], [FLOAT] * 2,
     ["", "", "", "", "[2, 2]", "[1, 1]", "[1, 1]"], 2 * 2 * 16 * 54, 4 * (768 + 54 + 192)),
    (CONVOLUTION, [[2, 3, 8, 8], [6, 3, 3, 3]], [FLOAT] * 2, (), None, None),
    # Transposed: each of the 2 x 16 input positions is multiplied with the whole weight
    (CONVOLUTION, [[2, 3, 4, 4], [3, 6, 3, 3]], [FLOAT] * 2, [*STRIDED[:6], "True"], 2 * 2 * 16 * 162, None),
    (CONVOLUTION, [[2, 0, 4, 4], [0, 6, 3, 3]], [FLOAT] * 2, [*STRIDED[:6], "True"], None, None),
    (f"{CONVOLUTION}_backward", GRADIENTS, [FLOAT] * 3, [""] * 10 + ["[True, True, False]"],
     2 * 10368, 4 * (192 + 2 * 384 + 2 * 162)),
    (f"{CONVOLUTION}_backward", GRADIENTS, [FLOAT] * 3, [""] * 10 + ["[False, True, False]"],
     10368, 4 * (192 + 384 + 162)),
    (f"{CONVOLUTION}_backward", GRADIENTS, [FLOAT] * 3, (), None, None),
    # 2 x 2 x 8 heads x 64 x 64 x (16 + 16); four tensors of 16384 elements
    (f"{SDPA}_flash_attention", [HEADS] * 3, [BF16] * 3, ["", "", "", "0.", "False"], 4194304, 131072),
    # Causal: 64 x 65 / 2 of the 64 x 64 pairs
    (f"{SDPA}_flash_attention", [HEADS] * 3, [BF16] * 3, ["", "", "", "0.", "True"], 2129920, 131072),
    # Four query heads share one key head: the same number of operations, fewer bytes
    (f"{SDPA}_flash_attention", [HEADS, SHARED, SHARED], [BF16] * 3, ["", "", "", "0.", "False"], 4194304, 81920),
    (f"{SDPA}_efficient_attention", [HEADS] * 3, [BF16] * 3, [""] * 6 + ["True"], 2129920, 131072),
    ("aten::_flash_attention_forward", [[2, 64, 8, 16]] * 3, [BF16] * 3, [""] * 8 + ["False"], 4194304, 131072),
    ("aten::_efficient_attention_forward", [[2, 64, 8, 16]] * 3, [BF16] * 3, [""] * 9 + ["1"], 2129920, 131072),
    (f"{SDPA}_flash_attention_backward", [HEADS] * 5, [BF16] * 5, [""] * 11 + ["False"], 10485760, 262144),
    (f"{SDPA}_cudnn_attention_backward", [HEADS] * 5, [BF16] * 5, [""] * 14 + ["True"], 5324800, 262144),
    ("flash_attn::_flash_attn_forward", [[2, 64, 8, 16]] * 3, [BF16] * 3, [""] * 5 + ["True"], 2129920, 131072),
    ("aten::_flash_attention_forward", [[128, 8, 16]] * 3, [BF16] * 3, [""] * 8 + ["False"], None, None),  # packed
    (f"{SDPA}_flash_attention", [HEADS] * 3, [BF16] * 3, (), None, None),  # causal or not?
    ("aten::native_layer_norm", [[4, 8], [], [8], [8], []], [FLOAT, "", FLOAT, FLOAT], (), 160, 256 + 64),
    ("aten::native_batch_norm", [[4, 8, 2, 2], [8], [8]], [FLOAT] * 3, (), 640, 1024 + 64),
    ("aten::native_group_norm", [[4, 8, 2, 2], [8], [8]], [FLOAT] * 3, (), 640, 1024 + 64),
    ("aten::native_layer_norm_backward", [[4, 8], [4, 8]], [FLOAT] * 2, (), 256, 384),
    ("aten::_softmax", [[4, 8], [], []], [HALF, "Scalar", "Scalar"], (), 160, 128),
    ("aten::add", [[4, 8], [8], []], [FLOAT, FLOAT, "Scalar"], (), 32, 4 * (32 + 8 + 32)),
    ("aten::mul", [[4, 8], []], [BF16, "double"], (), 32, 2 * 64 + 8),
    ("aten::mul", [[4, 8], [], [4, 8]], [BF16, "double", BF16], (), 32, 2 * 64 + 8),  # the third is out=
    ("aten::eq", [[4, 8], []], [LONG, "Scalar"], (), 32, 8 * 32 + 32),
    ("aten::add", [[4, 8], [3]], [FLOAT, FLOAT], (), None, None),
    ("aten::sum", [[4, 8], [], []], [FLOAT, "ScalarList", "Scalar"], (), 32, 128),
    ("aten::embedding", [[100, 16], [4, 3]], [FLOAT, LONG], (), None, 2 * 12 * 16 * 4 + 12 * 8),
    ("aten::index_select", [[100, 16], [], [4]], [FLOAT, "Scalar", LONG], ["", "0", ""], None, 2 * 4 * 16 * 4 + 4 * 8),
    ("aten::index_select", [[100, 16], [], [4]], [FLOAT, "Scalar", LONG], ["", "1", ""], None, None),
    ("aten::copy_", [[4, 8], [4, 8], []], [FLOAT, BF16, "Scalar"], (), None, 192),
    ("aten::fill_", [[4, 8], []], [FLOAT, "Scalar"], (), None, 128),
    ("aten::cat", [[[4, 8], [2, 8]], []], [FLOAT, "Scalar"], (), None, 2 * 48 * 4),
    # Parameters, gradients and two moments are read; all but the gradients are written
    ("aten::_fused_adamw_", [[[4, 8]], [[4, 8]], [[4, 8]], [[4, 8]], [], [[]]], [FLOAT] * 4, (), None, 7 * 128),
    ("aten::_foreach_add_", [[[4, 8], [2]], [[4, 8], [2]], []], [FLOAT, FLOAT], (), None, 3 * 34 * 4),
    ("aten::_foreach_add_", [[[4, 8]], [[4, 8]], []], ["TensorList", "TensorList"], (), None, None),
    ("my::operator", [[4, 8]], [FLOAT], (), None, None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "dims", "types", "values", "flop", "size"), CASES)
def test_flop_and_bytes_match_hand_calculation(name, dims, types, values, flop, size):
    assert work_of_call(name, call(dims, types, values)) == Work(flop, size)


@pytest.mark.parametrize(
    "dims", [b"", b"{", b"7", b'{"a":1}', b"[1]", b'[["1"]]', b"[[-1, 2], [2, 3]]", b"[[[1],2],[[]]]"]
)
@pytest.mark.parametrize("name", [case[0] for case in CASES])
def test_invalid_arguments_yield_no_work(name, dims):
    assert work_of_call(name, parse(dims, b'["float", 3]', b"[1]")) == NO


def test_argument_positions_match_torch_schemas():
    torch = pytest.importorskip("torch")

    def arguments(name):
        operator = getattr(torch.ops.aten, name)
        return [each.name for each in getattr(operator, operator.overloads()[0])._schema.arguments]

    for name, attention in _ATTENTIONS.items():
        if name.startswith("aten::"):
            names = arguments(name.removeprefix("aten::"))
            assert names[attention.query : attention.query + 3] == ["query", "key", "value"], name
            assert names[attention.causal] in ("is_causal", "custom_mask_type"), name
    for name, places in _CONVOLUTIONS.items():
        names = arguments(name)
        assert names[1] == "weight", name
        assert [names[places.stride], names[places.padding]] == ["stride", "padding"], name
        assert places.dilation is None or names[places.dilation] == "dilation", name
        assert places.transposed is None or names[places.transposed] == "transposed", name
    assert arguments("convolution_backward")[7::3] == ["transposed", "output_mask"]
