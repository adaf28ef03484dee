"""Count the operations and bytes of an operator's call from the shapes, types and values of its arguments.

A multiplication and an addition count as two operations. Bytes are the least that must be moved: each tensor that goes
in or comes out once. An elementwise function counts as one operation for each element, whatever it computes; a softmax
and a normalization as five. What a call does not tell is None, and so is everything of an unknown operator.

Sources: torch.utils.flop_counter for matmuls, convolutions and attention; the arguments are those of torch's
native_functions.yaml.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import NamedTuple

import msgspec

SIZES = {
    **dict.fromkeys(("double", "long int", "long", "c10::complex<float>", "unsigned long"), 8),
    **dict.fromkeys(("float", "int", "unsigned int"), 4),
    **dict.fromkeys(("c10::Half", "c10::BFloat16", "short", "unsigned short"), 2),
    **dict.fromkeys(("unsigned char", "signed char", "char", "bool"), 1),
    **dict.fromkeys((f"c10::Float8_{each}" for each in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu")), 1),
    "c10::complex<double>": 16,
}
"""Bytes of an element by Kineto's name for its type."""

Shape = tuple[int, ...]


class TensorArgument(NamedTuple):
    """A tensor argument of an operator, as the trace records it."""

    shape: Shape
    size: int | None
    """Bytes of an element; None if the trace does not tell."""

    @property
    def number(self) -> int:
        """Return the number of elements."""
        return prod(self.shape)


class Call(NamedTuple):
    """The arguments of a call, by position."""

    tensors: tuple[tuple[TensorArgument, ...], ...]
    """The tensors of each argument: one, several for a list, none for anything else."""
    types: tuple[str, ...]
    """Kineto's names for the types; "" for a list of tensors or an argument that was left out."""
    values: tuple[str, ...]
    """Values of arguments that are no tensors, as text."""

    def tensor(self, at: int) -> TensorArgument | None:
        """Return the tensor at a position."""
        given = self.tensors[at] if at < len(self.tensors) else ()
        return given[0] if len(given) == 1 else None

    def value(self, at: int) -> str:
        """Return the value at a position; "" if it was not recorded."""
        return self.values[at] if at < len(self.values) else ""


class Work(NamedTuple):
    """Operations and bytes of a call; None if they are not known."""

    flop: float | None
    bytes: float | None


NOTHING = Work(None, None)


def parse(dims: bytes, types: bytes, values: bytes = b"") -> Call:
    """Return a call from Kineto's JSON of its arguments; one that does not fit leaves all without shapes."""
    shapes, names, texts = (_decoded(each) for each in (dims, types, values))
    kinds = tuple(name if isinstance(name, str) else "" for name in names)
    found = [_tensors(shape, kinds[at] if at < len(kinds) else "") for at, shape in enumerate(shapes)]
    tensors = tuple(() if None in found or each is None else each for each in found)
    return Call(tensors, kinds, tuple(text if isinstance(text, str) else "" for text in texts))


def work_of_call(name: str, call: Call) -> Work:
    """Return what one call of the operator called `name` does."""
    for pattern, count in _MODELS:
        if pattern.search(name):
            return count(name, call)
    return NOTHING


def _decoded(text: bytes) -> list[object]:
    try:
        found = msgspec.json.decode(text) if text else []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    return found if isinstance(found, list) else []


def _tensors(given: object, kind: str) -> tuple[TensorArgument, ...] | None:
    shape = _shape(given)
    if shape is not None:
        # A tensor without dimensions and a number look alike, but only a tensor has a type of elements.
        return (TensorArgument(shape, SIZES.get(kind)),) if shape or kind in SIZES else ()
    shapes = [_shape(each) for each in given] if isinstance(given, list) else [None]
    return (
        None if None in shapes else tuple(TensorArgument(each, SIZES.get(kind)) for each in shapes if each is not None)
    )


def _shape(given: object) -> Shape | None:
    """Return a shape; None for anything else."""
    if isinstance(given, list) and all(type(length) is int and length >= 0 for length in given):
        return tuple(given)
    return None


def _moved(*tensors: TensorArgument | None) -> float | None:
    """Return the bytes of the tensors; None if one is missing or of unknown size."""
    total = 0
    for tensor in tensors:
        if tensor is None or tensor.size is None:
            return None
        total += tensor.number * tensor.size
    return float(total)


def _given(call: Call, *positions: int) -> list[TensorArgument]:
    """Return those of the tensors that were given."""
    return [tensor for at in positions if (tensor := call.tensor(at)) is not None]


# ---- matmuls ----


def _matmul(first: int) -> Callable[[str, Call], Work]:
    """Return the model of a matmul whose matrices are at `first` and after it; what comes before is added."""

    def count(name: str, call: Call) -> Work:
        left, right = call.tensor(first), call.tensor(first + 1)
        if left is None or right is None or not left.shape or not right.shape:
            return NOTHING
        a, b = left.shape, right.shape
        rows, columns = (a[:-1], b[-1:]) if len(b) > 1 else (a[:-1], ())
        if (b[-2] if len(b) > 1 else b[0]) != a[-1] or (len(a) > 2 and len(b) == len(a) and a[:-2] != b[:-2]):
            return NOTHING
        wide = left.size is not None and left.size < 2
        size = None if left.size is None else 4 if name.endswith("_int_mm") else 2 if wide else left.size
        out = TensorArgument((*rows, *columns), size)
        return Work(2.0 * out.number * a[-1], _moved(*_given(call, *range(first)), left, right, out))

    return count


def _grouped(name: str, call: Call) -> Work:
    """Count a matmul of groups: rows of one matrix, each with the matrix of its group out of a stack."""
    left, right = call.tensor(0), call.tensor(1)
    if left is None or right is None or (len(left.shape), len(right.shape)) != (2, 3):
        return NOTHING
    if left.shape[1] != right.shape[1]:
        return NOTHING
    size = None if left.size is None else max(2, left.size)
    out = TensorArgument((left.shape[0], right.shape[2]), size)
    return Work(2.0 * left.number * right.shape[2], _moved(left, right, out))


def _linear(name: str, call: Call) -> Work:
    given, weight = call.tensor(0), call.tensor(1)
    if given is None or weight is None or len(weight.shape) != 2 or given.shape[-1:] != weight.shape[1:]:
        return NOTHING
    out = TensorArgument((*given.shape[:-1], weight.shape[0]), given.size)
    return Work(2.0 * given.number * weight.shape[0], _moved(given, weight, *_given(call, 2), out))


# ---- convolutions ----


class _ConvolutionSettings(NamedTuple):
    """Positions of a convolution's settings among its arguments; None where it has none."""

    stride: int
    padding: int
    dilation: int | None
    transposed: int | None = None
    """Of a flag."""


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


def _convolution(name: str, call: Call) -> Work:
    given, weight = call.tensor(0), call.tensor(1)
    places = _CONVOLUTIONS.get(name.removeprefix("aten::"))
    dimensions = 0 if weight is None else len(weight.shape) - 2
    if given is None or weight is None or places is None or dimensions < 1 or len(given.shape) != dimensions + 2:
        return NOTHING
    if places.transposed is not None and call.value(places.transposed) != "False":
        if call.value(places.transposed) != "True":
            return NOTHING
        return _convolution_transposed(name, call)
    stride, padding, dilation = (
        [1] * dimensions if at is None else _numbers(call.value(at), dimensions)
        for at in (places.stride, places.padding, places.dilation)
    )
    if stride is None or padding is None or dilation is None or min(stride) < 1:
        return NOTHING
    spatial = tuple(
        (length + 2 * pad - dilated * (kernel - 1) - 1) // step + 1
        for length, kernel, step, pad, dilated in zip(
            given.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True
        )
    )
    if min(spatial) < 0:
        return NOTHING
    out = TensorArgument((given.shape[0], weight.shape[0], *spatial), given.size)
    return Work(2.0 * given.shape[0] * prod(spatial) * weight.number, _moved(given, weight, out))


def _convolution_transposed(name: str, call: Call) -> Work:
    given, weight = call.tensor(0), call.tensor(1)
    if given is None or weight is None or len(given.shape) < 3 or not given.shape[1]:
        return NOTHING
    return Work(2.0 * (given.number // given.shape[1]) * weight.number, None)


def _convolution_backward(name: str, call: Call) -> Work:
    """Count the gradients of the input and of the weight, each as many operations as the forward pass."""
    gradient, given, weight = (call.tensor(at) for at in range(3))
    wanted = re.findall("True|False", call.value(10))
    if gradient is None or given is None or weight is None or len(wanted) != 3 or len(gradient.shape) < 3:
        return NOTHING
    transposed = call.value(7) == "True"
    places = given if transposed else gradient
    if not places.shape[1]:
        return NOTHING
    once = 2.0 * (places.number // places.shape[1]) * weight.number
    of_input, of_weight = (each == "True" for each in wanted[:2])
    moved = [gradient] + [given] * (of_input + of_weight) + [weight] * (of_input + of_weight)
    return Work(once * (of_input + of_weight), _moved(*moved))


def _numbers(text: str, number: int) -> list[int] | None:
    """Return numbers from Kineto's text for a list of them; a single one counts for all dimensions."""
    found = [int(each) for each in re.findall(r"-?\d{1,9}", text)] if re.fullmatch(r"\[[\d, -]*\]", text) else []
    return found * number if len(found) == 1 else found if len(found) == number else None


# ---- attention ----


class _Attention(NamedTuple):
    """The arguments of an attention in one kernel."""

    query: int
    """Position of the query; key and value follow."""
    causal: int
    """Position of a flag, or of the number of a mask."""
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


def _attention(name: str, call: Call) -> Work:
    """Count attention in one kernel: two matmuls forward, five backward, which computes the scores again.

    Of a causal mask only the pairs below the diagonal count. A head of the keys that several heads of the queries share
    (GQA) is moved once.
    """
    known = _ATTENTIONS.get(name)
    given = [call.tensor(known.query + at) for at in range(3)] if known else []
    if known is None or any(each is None or len(each.shape) != 4 for each in given):
        return NOTHING
    query, key, value = (each for each in given if each is not None)
    sequence, heads = (2, 1) if known.by_head else (1, 2)
    queries, keys = query.shape[sequence], key.shape[sequence]
    said = call.value(known.causal)
    if said not in ("True", "False", "0", "1", "2"):
        return NOTHING
    pairs = float(queries * keys)
    if said in ("True", "1", "2"):
        seen = min(queries, keys)
        pairs = seen * (seen + 1) / 2 + float((queries - seen) * keys)
    number = query.shape[0] * query.shape[heads] * pairs
    out = TensorArgument((*query.shape[:3], value.shape[3]), query.size)
    if known.query:
        flop = 2 * number * (3 * query.shape[3] + 2 * value.shape[3])
        return Work(flop, _moved(query, query, key, key, value, value, out, out))
    return Work(2 * number * (query.shape[3] + value.shape[3]), _moved(query, key, value, out))


# ---- what memory limits ----


def _normalization(
    operations: int, reads: tuple[int, ...], weights: tuple[int, ...] = ()
) -> Callable[[str, Call], Work]:
    """Return the model of a normalization or softmax of the first argument, which reads tensors as large at `reads`."""

    def count(name: str, call: Call) -> Work:
        given = _given(call, *reads)
        if len(given) != len(reads):
            return NOTHING
        return Work(float(operations * given[0].number), _moved(*given, *_given(call, *weights), given[0]))

    return count


def _reduction(name: str, call: Call) -> Work:
    given = call.tensor(0)
    return NOTHING if given is None else Work(float(given.number), _moved(given))


def _elementwise(name: str, call: Call) -> Work:
    """Count a function of each element; the result is as large as its arguments, broadcast."""
    arguments = call.tensors[:2] if _TWO_OPERANDS.match(name) else call.tensors  # a third is out=, the result
    given = [tensors[0] for tensors in arguments if len(tensors) == 1]
    shape = _broadcast([each.shape for each in given])
    if not given or shape is None:
        return NOTHING
    sizes = [each.size for each in given if each.shape] or [each.size for each in given]
    size = 1 if _COMPARISON.search(name) else None if None in sizes else max(each for each in sizes if each is not None)
    out = TensorArgument(shape, size)
    return Work(float(out.number), _moved(*given, out))


def _broadcast(shapes: Sequence[Shape]) -> Shape | None:
    """Return the shape of what elementwise functions make of these; None if they do not fit."""
    length = max(map(len, shapes), default=0)
    found = []
    for lengths in zip(*((1,) * (length - len(shape)) + shape for shape in shapes), strict=True):
        long = {each for each in lengths if each != 1}
        if len(long) > 1:
            return None
        found.append(long.pop() if long else 1)
    return tuple(found)


def _copy(name: str, call: Call) -> Work:
    into, given = call.tensor(0), call.tensor(1)
    return NOTHING if into is None or given is None else Work(None, _moved(into, given))


def _fill(name: str, call: Call) -> Work:
    return Work(None, _moved(call.tensor(0)))


def _concatenation(name: str, call: Call) -> Work:
    pieces = call.tensors[0] if call.tensors else ()
    return Work(None, _moved(*pieces, *pieces)) if pieces else NOTHING


def _lookup(name: str, call: Call) -> Work:
    """Count the rows of a table that indices choose: each is read and written."""
    embedding = name == "aten::embedding"
    table, indices = call.tensor(0), call.tensor(1 if embedding else 2)
    if table is None or indices is None or not table.shape or not (embedding or call.value(1) == "0"):
        return NOTHING
    rows = TensorArgument((indices.number, *table.shape[1:]), table.size)
    return Work(None, _moved(rows, rows, indices))


def _lists(name: str, call: Call) -> Work:
    """Count an update of many tensors at once: each list is read, the first is written, so is an optimizer's state."""
    lists = [tensors for tensors in call.tensors if tensors and sum(each.number for each in tensors) > len(tensors)]
    if not lists:
        return NOTHING
    # A fused optimizer writes parameters and state; gradients, the second list, are only read.
    written = lists[:1] + lists[2:] if "_fused_" in name else lists[:1]
    return Work(None, _moved(*(tensor for each in (*lists, *written) for tensor in each)))


_TWO_OPERANDS = re.compile(r"^aten::(add|sub|mul|div)_?$")
_COMPARISON = re.compile(r"^aten::(eq|ne|lt|le|gt|ge|isnan|isinf|isfinite|logical_\w+)_?$")

_MODELS: tuple[tuple[re.Pattern[str], Callable[[str, Call], Work]], ...] = tuple(
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
