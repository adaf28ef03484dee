"""Find what the source around a line shows: a Python loop, a pass without gradients, a generator."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_PARAMETERS = frozenset(("parameters", "named_parameters", "state_dict"))
_WITHOUT_GRADIENTS = frozenset(("no_grad", "inference_mode"))


@dataclass(frozen=True, slots=True)
class Syntax:
    """The syntax around a line in its function."""

    loop: bool = False
    """Whether the line is repeated by a loop or a comprehension."""
    recurrent: bool = False
    """Whether an iteration of such a loop needs the result of the one before, as in a recurrent cell (not a sum)."""
    no_grad: bool = False
    """Whether it runs without gradients."""
    generator: bool = False
    """Whether the function yields."""
    statement_loop: bool = False
    """Whether a `for` or `while` statement repeats it, not only a comprehension."""
    parameters: bool = False
    """Whether the innermost loop iterates over a model's parameters, their gradients or its state."""
    calls: frozenset[str] = frozenset()
    """Names of the functions and methods that the line calls; for an attribute, also `base.name`."""
    one_row: bool = False
    """Whether the function adds a batch dimension of one: unsqueeze(0) or [None]."""


@lru_cache(maxsize=32)
def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def syntax(lines: Sequence[str], number: int) -> Syntax | None:
    """Return what surrounds a line; None if the source is not Python or has no such line."""
    tree = _parsed("\n".join(lines))
    if tree is None or not 0 < number <= len(lines):
        return None
    ancestors = list(_around(tree, number))
    last = max((index for index, node in enumerate(ancestors) if isinstance(node, _FUNCTIONS)), default=0)
    function, inner_nodes = ancestors[last], ancestors[last + 1 :]
    function_nodes = list(_within(function))
    line_nodes = [
        node for node in function_nodes if getattr(node, "lineno", 0) <= number <= (getattr(node, "end_lineno", 0) or 0)
    ]
    loops = [node for node in inner_nodes if isinstance(node, _LOOPS) and _repeats(node, number)]
    return Syntax(
        loop=bool(loops),
        statement_loop=any(isinstance(loop, (ast.For, ast.AsyncFor, ast.While)) for loop in loops),
        recurrent=any(_recurs(loop) for loop in loops),
        no_grad=_has_no_grad(ancestors[: last + 1], inner_nodes),
        parameters=bool(loops) and any(_name(call.func) in _PARAMETERS for call in _iterated(loops[-1])),
        generator=any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in function_nodes),
        calls=frozenset(name for node in line_nodes if isinstance(node, ast.Call) for name in _names(node.func)),
        one_row=any(_adds_a_row(node) for node in function_nodes),
    )


def _around(tree: ast.AST, number: int) -> Iterator[ast.AST]:
    """Yield the nodes that hold the line, from the outermost one."""
    node: ast.AST | None = tree
    while node is not None:
        yield node
        children = (
            child
            for child in ast.iter_child_nodes(node)
            if getattr(child, "lineno", number + 1) <= number <= (getattr(child, "end_lineno", 0) or 0)
        )
        # If a line holds several nodes, one that contains a loop or comprehension matters most.
        node = max(
            children,
            key=lambda child: any(isinstance(descendant, _LOOPS) for descendant in ast.walk(child)),
            default=None,
        )


def _repeats(loop: ast.AST, number: int) -> bool:
    """Return whether the line is in the loop, not only in what it iterates over, which is evaluated once."""
    if isinstance(loop, ast.While) and loop.lineno <= number <= (loop.test.end_lineno or 0):
        return True
    body = getattr(loop, "body", None)
    return not isinstance(body, list) or any(
        statement.lineno <= number <= (statement.end_lineno or 0) for statement in body
    )


def _iterated(loop: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls in what a loop iterates over."""
    for part in (loop, *getattr(loop, "generators", ())):
        if isinstance(part, (ast.For, ast.AsyncFor, ast.comprehension)):
            yield from (node for node in ast.walk(part.iter) if isinstance(node, ast.Call))


def _recurs(loop: ast.AST) -> bool:
    """Return whether a statement of the loop's body computes a variable from its own value, other than by a sum."""
    for node in _within(loop):
        if isinstance(node, ast.Assign):
            names = {name for target in node.targets for name in _assigned(target)}
            if any(isinstance(factor, ast.Name) and factor.id in names for factor in _factors(node.value)):
                return True
    return False


def _assigned(target: ast.AST) -> Iterator[str]:
    """Yield the variables that a target of an assignment changes; for `x[i]`, x but not i."""
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, (ast.Subscript, ast.Attribute, ast.Starred)):
        yield from _assigned(target.value)
    elif isinstance(target, (ast.Tuple, ast.List)):
        for part in target.elts:
            yield from _assigned(part)


def _factors(value: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of an expression, without plain names that are terms of its sum."""
    for part in _parts(value):
        if not isinstance(part, ast.Name):
            yield from ast.walk(part)


def _parts(value: ast.AST) -> Iterator[ast.AST]:
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Sub)):
        yield from _parts(value.left)
        yield from _parts(value.right)
    else:
        yield value


def _within(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function, without those of functions inside it."""
    stack = list(ast.iter_child_nodes(function))
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, _FUNCTIONS):
            stack += ast.iter_child_nodes(node)


def _has_no_grad(functions: Sequence[ast.AST], inside: Sequence[ast.AST]) -> bool:
    decorators = [expression for node in functions for expression in getattr(node, "decorator_list", ())]
    contexts = [item.context_expr for node in inside if isinstance(node, ast.With) for item in node.items]
    return any(
        _name(expression.func if isinstance(expression, ast.Call) else expression) in _WITHOUT_GRADIENTS
        for expression in (*decorators, *contexts)
    )


def _adds_a_row(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and _name(node.func) == "unsqueeze":
        return bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value is None
    return False


def _names(function: ast.AST) -> tuple[str, ...]:
    name = _name(function)
    base = _name(function.value) if isinstance(function, ast.Attribute) else ""
    return (name, f"{base}.{name}") if base else (name,)


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
