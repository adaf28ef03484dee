"""Find calls by the full name of the called function, and set their arguments in the text."""

import ast
import io
import tokenize
from collections.abc import Iterator, Mapping

from advisor.patches.source import Edit, NoPatch, SourceFile

_NOTHING = (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
"""Tokens that are not code: they may surround an argument."""


def calls(tree: ast.Module, package: str, name: str) -> list[ast.Call]:
    """Return the calls of `name` anywhere in `package`, resolved by the file's imports."""
    imports = dict(_imported(tree))
    matches = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            first, *rest = _dotted(node.func)
            full_name = ".".join([imports.get(first, ""), *rest])
            if full_name.startswith(f"{package}.") and full_name.endswith(f".{name}"):
                matches.append(node)
    return matches


def at_line(found: list[ast.Call], line: int) -> list[ast.Call]:
    """Return the calls that begin on that line; if none does, the calls that span it."""
    return [call for call in found if call.lineno == line] or [
        call for call in found if call.lineno <= line <= (call.end_lineno or 0)
    ]


def with_arguments(
    source: SourceFile,
    call: ast.Call,
    wanted: Mapping[str, object],
    positions: Mapping[str, int],
    off: Mapping[str, object],
) -> list[Edit]:
    """Return the edits that give the call these keyword arguments.

    Args:
        source: The source that holds the call.
        call: The call.
        wanted: The arguments to set.
        positions: Positions of the arguments that can be given by position.
        off: Arguments to set to these values if the call gives them, or unpacks `**` arguments that may contain them.

    Raises:
        NoPatch: `*args` hides which arguments are given.
    """
    keywords = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    unpacked = [keyword.value for keyword in call.keywords if keyword.arg is None]
    values = {**{name: value for name, value in off.items() if name in keywords or unpacked}, **wanted}
    edits, additions = [], {}
    for name, value in values.items():
        position = positions.get(name)
        if name in keywords:
            edits.append(Edit(*source.span(keywords[name]), repr(value)))
        elif position is not None and any(isinstance(argument, ast.Starred) for argument in call.args[: position + 1]):
            raise NoPatch(f"Its `*` arguments may contain `{name}`.")
        elif position is not None and position < len(call.args):
            edits.append(Edit(*source.span(call.args[position]), repr(value)))
        else:
            additions[name] = repr(value)
    if len(unpacked) > 1 and additions:
        raise NoPatch("Several `**` arguments may contain the setting.")
    if unpacked and additions:  # it may contain them already, and duplicates are an error
        start, end = source.span(unpacked[0])
        expression = source.text[start:end]
        return [*edits, Edit(start, end, f"dict({', '.join([expression, *map('='.join, additions.items())])})")]
    return [*edits, *_added(source, call, [f"{name}={value}" for name, value in additions.items()])]


def _added(source: SourceFile, call: ast.Call, arguments: list[str]) -> Iterator[Edit]:
    """Yield the edits that add arguments at the end, on separate lines if the others are."""
    if not arguments:
        return
    last, closing = _last_two(source, call)
    comma = source.text[last - 1] == ","
    if source.text[last - 1] == "(":
        yield Edit(last, last, ", ".join(arguments))
    elif "\n" not in source.text[last:closing]:
        begin = source.span(call)[0]
        separator = f",{source.newline}{source.indent(last)}" if "\n" in source.text[begin:last] else ", "
        yield Edit(last, last, (separator.removeprefix(",") if comma else separator) + ", ".join(arguments))
    else:
        end = source.text.index("\n", last)
        end -= source.text[end - 1] == "\r"
        if not comma:
            yield Edit(last, last, ",")
        lines = f",{source.newline}{source.indent(last - 1)}".join(["", *arguments])
        yield Edit(end, end, lines.removeprefix(",") + ("," if comma else ""))


def _last_two(source: SourceFile, call: ast.Call) -> tuple[int, int]:
    """Return where the last token before the call's closing parenthesis ends, and where that parenthesis begins."""
    start, end = source.span(call)
    segment = source.text[start:end]
    starts = [0]
    for line in io.StringIO(segment, newline=""):
        starts.append(starts[-1] + len(line))
    tokens = [
        token
        for token in tokenize.generate_tokens(io.StringIO(segment, newline="").readline)
        if token.type not in _NOTHING
    ]
    row, column = tokens[-2].end
    return start + starts[row - 1] + column, end - 1


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each imported name and its full name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _dotted(node: ast.expr) -> list[str]:
    """Return the parts of a dotted name; one empty part if it is something else."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute) and (parts := _dotted(node.value)) != [""]:
        return [*parts, node.attr]
    return [""]
