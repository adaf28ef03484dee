"""Count the operations and bytes of an operator's call from the shapes, types and values of its arguments.

A multiplication and an addition count as two operations. Bytes are the minimum that must be moved: each input and
output tensor once. An elementwise function counts as one operation per element, whatever it computes; a softmax or a
normalization as five. A number that the arguments do not show is None; so are both numbers of an unknown operator.

Sources: torch.utils.flop_counter for matmuls, convolutions and attention; the arguments are those of torch's
native_functions.yaml.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from math import isnan, nan, prod
from typing import NamedTuple

import msgspec
import numpy as np

_FLOATING = {
    "double": (8, "fp64"),
    "float": (4, "fp32"),
    "c10::Half": (2, "fp16"),
    "c10::BFloat16": (2, "bf16"),
    **dict.fromkeys((f"c10::Float8_{variant}" for variant in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz")), (1, "fp8")),
}
"""Bytes of an element and dtype, by Kineto's name for its type."""
SIZES = {
    **{name: size for name, (size, _) in _FLOATING.items()},
    **dict.fromkeys(("long int", "long", "c10::complex<float>", "unsigned long"), 8),
    **dict.fromkeys(("int", "unsigned int"), 4),
    **dict.fromkeys(("short", "unsigned short"), 2),
    **dict.fromkeys(("unsigned char", "signed char", "byte", "char", "bool", "c10::Float8_e8m0fnu"), 1),
    "c10::complex<double>": 16,
}
"""Bytes of an element by Kineto's name for its type."""

Shape = tuple[int, ...]


class Operand(NamedTuple):
    """A tensor argument of an operator, as the trace records it."""

    shape: Shape
    size: int | None
    """Bytes of an element; None if the trace does not show it."""

    @property
    def number(self) -> int:
        """Return the number of elements."""
        return prod(self.shape)

    @property
    def bytes(self) -> float:
        """Return the bytes of all elements; NaN if they are not known."""
        return nan if self.size is None else float(self.number * self.size)


class Call(NamedTuple):
    """The arguments of a call, by position."""

    tensors: tuple[tuple[Operand, ...], ...]
    """The tensors of each argument: one, several for a list, none for anything else."""
    types: tuple[str, ...]
    """Kineto's names for the types; "" for a list of tensors or an argument that was left out."""
    values: tuple[str, ...]
    """Values of arguments that are not tensors, as text."""

    def tensor(self, at: int) -> Operand:
        """Return the tensor at a position.

        Raises:
            IndexError: there is none.
        """
        return self.given(at)[0]

    def given(self, *positions: int) -> list[Operand]:
        """Return the tensors that were given at these positions."""
        arguments = (self.tensors[position] for position in positions if position < len(self.tensors))
        return [tensors[0] for tensors in arguments if len(tensors) == 1]

    def value(self, at: int) -> str:
        """Return the value at a position; "" if it was not recorded."""
        return self.values[at] if at < len(self.values) else ""

    @property
    def dtype(self) -> str | None:
        """Return the first floating-point dtype among the types."""
        return next((_FLOATING[name][1] for name in self.types if name in _FLOATING), None)


class Work(NamedTuple):
    """Operations and bytes of a call; None if they are not known."""

    flop: float | None
    bytes: float | None


NOTHING = Work(None, None)

Count = Callable[[str, Call], tuple[float, float]]
"""A model: it returns the operations and bytes of a call, each NaN if unknown.

It raises LookupError or ValueError if an argument was not recorded, or does not fit the operator.
"""


def parse(dims: bytes, types: bytes, values: bytes = b"") -> Call:
    """Return a call from Kineto's JSON of its arguments; if one is malformed, none of them has a shape."""
    shapes, names, texts = (_decoded(argument) for argument in (dims, types, values))
    kinds = tuple(name if isinstance(name, str) else "" for name in names)
    operands = [
        _tensors(shape, kinds[position] if position < len(kinds) else "") for position, shape in enumerate(shapes)
    ]
    tensors = tuple(() if None in operands or argument is None else argument for argument in operands)
    return Call(tensors, kinds, tuple(text if isinstance(text, str) else "" for text in texts))


def work_of_call(name: str, call: Call) -> Work:
    """Return the work of one call of the operator `name`."""
    for pattern, count in _MODELS:
        if pattern.search(name):
            try:
                flop, size = count(name, call)
            except (LookupError, ValueError):
                return NOTHING
            return Work(None if isnan(flop) else flop, None if isnan(size) else size)
    return NOTHING


def _decoded(text: bytes) -> list[object]:
    try:
        values = msgspec.json.decode(text) if text else []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    return values if isinstance(values, list) else []


def _tensors(given: object, kind: str) -> tuple[Operand, ...] | None:
    shape = _shape(given)
    if shape is not None:
        # A 0-dimensional tensor and a number look alike, but only a tensor has an element type.
        return (Operand(shape, SIZES.get(kind)),) if shape or kind in SIZES else ()
    shapes = [_shape(dims) for dims in given] if isinstance(given, list) else [None]
    return None if None in shapes else tuple(Operand(dims, SIZES.get(kind)) for dims in shapes if dims is not None)


def _shape(given: object) -> Shape | None:
    """Return a shape; None for anything else."""
    if isinstance(given, list) and all(type(length) is int and length >= 0 for length in given):
        return tuple(given)
    return None


def _check(fits: bool) -> None:
    if not fits:
        raise ValueError


def _moved(*tensors: Operand) -> float:
    """Return the bytes of the tensors; NaN if one is of unknown size."""
    return sum(tensor.bytes for tensor in tensors)


# ---- matmuls ----


def _matmul(first: int) -> Count:
    """Return the model of a matmul of arguments `first` and `first + 1`; any argument before them is added."""

    def count(name: str, call: Call) -> tuple[float, float]:
        left, right = call.tensor(first), call.tensor(first + 1)
        a, b = left.shape, right.shape
        _check(len(a) <= 2 or len(b) != len(a) or a[:-2] == b[:-2])
        is_widened = left.size is not None and left.size < 2
        output_size = 4 if name.endswith("_int_mm") else 2 if is_widened else left.size
        return _product(
            left, right, *((b[-2], b[-1:]) if len(b) > 1 else (b[0], ())), output_size, call.given(*range(first))
        )

    return count


def _grouped(_: str, call: Call) -> tuple[float, float]:
    """Count a grouped matmul: each row of one matrix is multiplied by its group's matrix from a stack."""
    left, right = call.tensor(0), call.tensor(1)
    _check((len(left.shape), len(right.shape)) == (2, 3))
    return _product(left, right, right.shape[1], right.shape[2:], left.size and max(2, left.size))


def _linear(_: str, call: Call) -> tuple[float, float]:
    left, weight = call.tensor(0), call.tensor(1)
    _check(len(weight.shape) == 2)
    return _product(left, weight, weight.shape[1], weight.shape[:1], left.size, call.given(2))


def _product(
    left: Operand, right: Operand, inner: int, columns: Shape, size: int | None, added: Iterable[Operand] = ()
) -> tuple[float, float]:
    """Count the product of the rows of `left` with `columns` of `right`, with elements of `size` bytes."""
    _check(left.shape[-1:] == (inner,))
    output = Operand((*left.shape[:-1], *columns), size)
    return 2.0 * output.number * inner, _moved(left, right, output, *added)


# ---- convolutions ----


class _ConvolutionSettings(NamedTuple):
    """Positions of a convolution's settings among its arguments; None where it has none."""

    stride: int
    padding: int
    dilation: int | None
    transposed: int | None = None
    """Position of the flag."""


_CONVOLUTIONS: Mapping[str, _ConvolutionSettings] = {
    "convolution": _ConvolutionSettings(3, 4, 5, 6),
    "_convolution": _ConvolutionSettings(3, 4, 5, 6),
    "convolution_overrideable": _ConvolutionSettings(3, 4, 5, 6),
    "cudnn_convolution": _ConvolutionSettings(3, 2, 4),
    "cudnn_convolution_relu": _ConvolutionSettings(3, 4, 5),
    "cudnn_convolution_add_relu": _ConvolutionSettings(5, 6, 7),
    "miopen_convolution": _ConvolutionSettings(4, 3, 5),
    "miopen_depthwise_convolution": _ConvolutionSettings(4, 3, 5),
    "mkldnn_convolution": _ConvolutionSettings(4, 3, 5),
    "_slow_conv2d_forward": _ConvolutionSettings(4, 5, None),
    "slow_conv3d_forward": _ConvolutionSettings(4, 5, None),
    "_conv_depthwise2d": _ConvolutionSettings(4, 5, 6),
    "conv_depthwise3d": _ConvolutionSettings(4, 5, 6),
}


def _convolution(name: str, call: Call) -> tuple[float, float]:
    inputs, weight = call.tensor(0), call.tensor(1)
    places, dimensions = _CONVOLUTIONS[name.removeprefix("aten::")], len(weight.shape) - 2
    _check(dimensions > 0 and len(inputs.shape) == len(weight.shape))
    if places.transposed is not None and call.value(places.transposed) != "False":
        _check(call.value(places.transposed) == "True")
        return _convolution_transposed(name, call)
    stride, padding, dilation = (
        [1] * dimensions if position is None else _numbers(call.value(position), dimensions)
        for position in (places.stride, places.padding, places.dilation)
    )
    _check(min(stride) > 0)
    spatial_shape = tuple(
        (length + 2 * pad - spacing * (kernel - 1) - 1) // step + 1
        for length, kernel, step, pad, spacing in zip(
            inputs.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True
        )
    )
    _check(min(spatial_shape) >= 0)
    output = Operand((inputs.shape[0], weight.shape[0], *spatial_shape), inputs.size)
    return 2.0 * inputs.shape[0] * prod(spatial_shape) * weight.number, _moved(inputs, weight, output)


def _convolution_transposed(_: str, call: Call) -> tuple[float, float]:
    return _meetings(call.tensor(0), call.tensor(1)), nan


def _convolution_backward(_: str, call: Call) -> tuple[float, float]:
    """Count the gradients of the input and of the weight, each as many operations as the forward pass."""
    gradient, inputs, weight = (call.tensor(position) for position in range(3))
    mask = re.findall("True|False", call.value(10))
    _check(len(mask) == 3 and len(gradient.shape) > 2)
    number = mask[:2].count("True")
    operations = _meetings(inputs if call.value(7) == "True" else gradient, weight)
    return operations * number, _moved(gradient, *[inputs, weight] * number)


def _meetings(places: Operand, weight: Operand) -> float:
    """Count the operations of a convolution that applies the whole weight at each of these places."""
    _check(len(places.shape) > 2 and places.shape[1] > 0)
    return 2.0 * (places.number // places.shape[1]) * weight.number


def _numbers(text: str, number: int) -> list[int]:
    """Return the numbers in Kineto's text for a list; a single number applies to all dimensions."""
    numbers = [int(digits) for digits in re.findall(r"-?\d{1,9}", text)] if re.fullmatch(r"\[[\d, -]*\]", text) else []
    _check(len(numbers) in (1, number))
    return numbers * number if len(numbers) == 1 else numbers


# ---- attention ----


class _Attention(NamedTuple):
    """The arguments of a fused attention operator."""

    query: int
    """Position of the query; key and value follow."""
    causal: int
    """Position of the causal flag, or of the number of the mask type."""
    by_head: bool
    """Whether shapes are batch, heads, sequence, size; else batch, sequence, heads, size."""


_ATTENTIONS: Mapping[str, _Attention] = {
    "aten::_scaled_dot_product_flash_attention": _Attention(0, 4, True),
    "aten::_scaled_dot_product_efficient_attention": _Attention(0, 6, True),
    "aten::_scaled_dot_product_cudnn_attention": _Attention(0, 6, True),
    "aten::_scaled_dot_product_fused_attention_overrideable": _Attention(0, 5, True),
    "aten::_scaled_dot_product_flash_attention_for_cpu": _Attention(0, 4, True),
    "aten::_flash_attention_forward": _Attention(0, 8, False),
    "aten::_efficient_attention_forward": _Attention(0, 9, False),
    "aten::_cudnn_attention_forward": _Attention(0, 10, True),
    "aten::_scaled_dot_product_flash_attention_backward": _Attention(1, 11, True),
    "aten::_scaled_dot_product_efficient_attention_backward": _Attention(1, 11, True),
    "aten::_scaled_dot_product_cudnn_attention_backward": _Attention(1, 14, True),
    "aten::_flash_attention_backward": _Attention(1, 11, False),
    "aten::_efficient_attention_backward": _Attention(1, 14, False),
    "aten::_cudnn_attention_backward": _Attention(1, 14, True),
    "flash_attn::_flash_attn_forward": _Attention(0, 5, False),
    "flash_attn::_flash_attn_backward": _Attention(1, 11, False),
}


def _attention(name: str, call: Call) -> tuple[float, float]:
    """Count fused attention: two matmuls forward; five backward, which recomputes the scores.

    With a causal mask, only the pairs on and below the diagonal count. A key head that several query heads share (GQA)
    is moved once.
    """
    layout = _ATTENTIONS[name]
    query, key, value = (call.tensor(layout.query + offset) for offset in range(3))
    causal = call.value(layout.causal)
    _check(all(len(tensor.shape) == 4 for tensor in (query, key, value)) and causal in ("True", "False", "0", "1", "2"))
    sequence, heads = (2, 1) if layout.by_head else (1, 2)
    queries, keys = query.shape[sequence], key.shape[sequence]
    pairs = float(queries * keys)
    if causal in ("True", "1", "2"):
        diagonal = min(queries, keys)
        pairs = diagonal * (diagonal + 1) / 2 + float((queries - diagonal) * keys)
    number = query.shape[0] * query.shape[heads] * pairs
    moved_bytes = _moved(query, key, value, Operand((*query.shape[:3], value.shape[3]), query.size))
    if layout.query:
        return 2 * number * (3 * query.shape[3] + 2 * value.shape[3]), 2 * moved_bytes
    return 2 * number * (query.shape[3] + value.shape[3]), moved_bytes


# ---- memory-bound operators ----


def _normalization(operations: int, reads: tuple[int, ...], weights: tuple[int, ...] = ()) -> Count:
    """Return the model of a normalization or softmax that reads the tensors at `reads`, all as large as its result."""

    def count(_: str, call: Call) -> tuple[float, float]:
        tensors = [call.tensor(position) for position in reads]
        return float(operations * tensors[0].number), _moved(*tensors, *call.given(*weights), tensors[0])

    return count


def _reduction(_: str, call: Call) -> tuple[float, float]:
    tensor = call.tensor(0)
    return float(tensor.number), tensor.bytes


def _elementwise(name: str, call: Call) -> tuple[float, float]:
    """Count an elementwise function; the result has the broadcast shape of the arguments."""
    # The third tensor of some operators is out=, the result.
    tensors = call.given(*range(2 if _TWO_OPERANDS.match(name) else len(call.tensors)))
    _check(len(tensors) > 0)
    shape = np.broadcast_shapes(*(tensor.shape for tensor in tensors))
    sizes = [tensor.size or 0 for tensor in tensors if tensor.shape] or [tensor.size or 0 for tensor in tensors]
    output = Operand(shape, 1 if _COMPARISON.search(name) else max(sizes))
    return float(output.number), _moved(*tensors, output)


def _copy(_: str, call: Call) -> tuple[float, float]:
    return nan, _moved(call.tensor(0), call.tensor(1))


def _fill(_: str, call: Call) -> tuple[float, float]:
    return nan, call.tensor(0).bytes


def _concatenation(_: str, call: Call) -> tuple[float, float]:
    pieces = call.tensors[0] if call.tensors else ()
    _check(len(pieces) > 0)
    return nan, 2 * _moved(*pieces)


def _lookup(name: str, call: Call) -> tuple[float, float]:
    """Count the table rows that the indices select: each is read and written."""
    is_embedding = name == "aten::embedding"
    table, indices = call.tensor(0), call.tensor(1 if is_embedding else 2)
    _check(len(table.shape) > 0 and (is_embedding or call.value(1) == "0"))
    rows = Operand((indices.number, *table.shape[1:]), table.size)
    return nan, _moved(rows, rows, indices)


def _lists(name: str, call: Call) -> tuple[float, float]:
    """Count an update of many tensors at once: each list is read; the first and an optimizer's state are written."""
    lists = [tensors for tensors in call.tensors if tensors and sum(item.number for item in tensors) > len(tensors)]
    _check(len(lists) > 0)
    # A fused optimizer writes parameters and state; gradients, the second list, are only read.
    written_lists = lists[:1] + lists[2:] if "_fused_" in name else lists[:1]
    return nan, _moved(*(tensor for item in (*lists, *written_lists) for tensor in item))


_TWO_OPERANDS = re.compile(r"^aten::(add|sub|mul|div)_?$")
_COMPARISON = re.compile(r"^aten::(eq|ne|lt|le|gt|ge|isnan|isinf|isfinite|logical_\w+)_?$")

_MODELS: tuple[tuple[re.Pattern[str], Count], ...] = tuple(
    (re.compile(rf"^(?:{pattern})$"), model)
    for pattern, model in (
        (r"aten::(mm|bmm|_int_mm|_scaled_mm|mv|dot|vdot)", _matmul(0)),
        (r"aten::(addmm|baddbmm|_addmm_activation|addmv)_?", _matmul(1)),
        (r"aten::(linear|mkldnn_linear)", _linear),
        (r"aten::(_grouped_mm|_scaled_grouped_mm)", _grouped),
        (r"aten::(convolution|cudnn_convolution|\w*slow_conv[23]d)\w*_backward", _convolution_backward),
        (r"aten::(cudnn|miopen)_convolution_transpose", _convolution_transposed),
        (r"aten::\w*conv(?!ert)\w*", _convolution),
        (r"(aten|flash_attn)::\w*(attention|attn)\w*", _attention),
        (r"aten::((native_)?layer_norm|(_fused_)?rms_norm)", _normalization(5, (0,), (2, 3))),
        (r"aten::(native_group|(native|cudnn|miopen)_batch)_norm", _normalization(5, (0,), (1, 2))),
        (r"aten::((native|cudnn|miopen)_batch|native_layer|native_group)_norm_backward", _normalization(8, (0, 1))),
        (r"aten::(_softmax|_log_softmax|_safe_softmax)", _normalization(5, (0,))),
        (r"aten::(_softmax|_log_softmax)_backward_data", _normalization(4, (0, 1))),
        (r"aten::(sum|mean|amax|amin|max|min|prod|all|any|var|std|var_mean|norm|linalg_vector_norm|logsumexp|argmax"
         r"|argmin|cumsum)", _reduction),
        (r"aten::copy_", _copy),
        (r"aten::(fill|zero)_", _fill),
        (r"aten::(cat|_cat)", _concatenation),
        (r"aten::(index_select|embedding)", _lookup),
        (r"aten::_(foreach|fused)_(?!rms)\w+", _lists),
        (r"aten::(add|sub|rsub|mul|div|neg|abs|sign|pow|exp|exp2|log|log1p|sqrt|rsqrt|square|reciprocal|sin|cos|tanh"
         r"|sigmoid|relu|gelu|silu|mish|elu|leaky_relu|hardtanh|hardswish|clamp|clamp_min|clamp_max|maximum|minimum|where"
         r"|eq|ne|lt|le|gt|ge|isnan|isinf|isfinite|logical_\w+|bitwise_\w+|erf|floor|ceil|round|addcmul|addcdiv|lerp"
         r"|masked_fill|threshold|(gelu|silu|sigmoid|tanh|threshold|elu|leaky_relu|hardtanh|hardswish)_backward)_?",
         _elementwise),
    )
)  # fmt: skip
