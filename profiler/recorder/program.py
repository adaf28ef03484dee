"""Read from the program's source how objects that the agent has seen are named and made.

The source is parsed, never run. Only files in which the agent saw objects made are parsed, as soon as it reports them,
and only if they are unchanged since they ran. If the source is ambiguous, nothing is recorded.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

MOST_BYTES = 1 << 18
"""Maximum bytes of a file to read: a script of thousands of lines, parsed in a fifth of a second."""

MOST_FILES = 16
MOST_WORD = 40

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)

# Calls that configure each framework, by the last part of their names.
CALLS: dict[str, tuple[str, ...]] = {
    "transformers": ("TrainingArguments", "Seq2SeqTrainingArguments"),
    "lightning": ("Trainer",),
    "fabric": ("Fabric",),
    "accelerate": ("Accelerator",),
    "deepspeed": ("initialize",),
}

SAVE = "torch.save"
"""ID and name of the fact on a call of `torch.save`."""

# String arguments of these calls that are one of a set of words, or the name of a configuration file.
WORDS = frozenset(("precision", "mixed_precision", "optim", "strategy", "config", "deepspeed", "profiler", "fsdp"))


class ProgramSource:
    """The source of one process, read file by file on demand, and the facts it completes."""

    def __init__(self, since: float) -> None:
        """Ignore files that changed after `since`, the Unix time at which the process imported torch."""
        self._since = since
        self._files: dict[str, File | None] = {}
        self._optimizers: dict[Any, dict[str, Any]] = {}
        self._reported: set[str] = set()

    def complete(self, kind: str, fact: dict[str, Any]) -> list[dict[str, Any]]:
        """Add what the source shows to a loader's, optimizer's or model's fact; return new facts of kind "call"."""
        with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):  # a damaged line
            if kind in ("loader", "optimizer"):
                fact["variable"] = self._variable(fact)
            if kind == "optimizer":
                self._optimizers[fact["id"]] = fact
                return [*self._call(fact), *self._save(fact)]
            if kind == "model":
                self._name_model(fact)
        return []

    def _variable(self, fact: Mapping[str, Any]) -> str | None:
        """Return the variable of an object that the program itself made, not a framework on its behalf."""
        place = fact.get("place")
        if not place or place.get("via"):
            return None
        file = self._file(place["file"])
        return file.target(place["line"]) if file else None

    def _call(self, optimizer: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the call that configures the framework driving the loop, from the first file with only one."""
        framework = _driver(optimizer)
        if framework in CALLS and framework not in self._reported:
            for path, file in self._leading_to(optimizer):
                calls = file.calls(lambda call: _configures(call, framework))
                if len(calls) == 1:
                    self._reported.add(framework)
                    return [_call_fact(framework, _last(calls[0].func), path, calls[0], _settings(calls[0]))]
        return []

    def _save(self, optimizer: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the call of torch.save, if there is only one."""
        files = self._leading_to(optimizer)
        calls = [(path, call) for path, file in files for call in file.calls(lambda node: _dotted(node.func) == SAVE)]
        if len(calls) != 1 or SAVE in self._reported:
            return []
        self._reported.add(SAVE)
        return [_call_fact(SAVE, SAVE, *calls[0], {})]

    def _leading_to(self, optimizer: Mapping[str, Any]) -> Iterator[tuple[str, File]]:
        """Yield the files that led to an optimizer."""
        for path in dict.fromkeys(line["file"] for line in optimizer.get("callers", ())):
            if file := self._file(path):
                yield path, file

    def _name_model(self, fact: dict[str, Any]) -> None:
        """Name a model by the optimizer that updates it, which has the same number of parameters."""
        optimizer = self._updating(fact)
        for line in optimizer.get("callers", ()):
            file = self._file(line["file"])
            name = file.model(line["line"], _driver(optimizer)) if file else None
            if file and name and name != "self":
                fact["variable"] = name
                creation_line = file.made(name, line["line"], str(fact.get("name")))
                if creation_line:
                    fact["place"] = {"file": line["file"], "line": creation_line}
                return

    def _updating(self, model: Mapping[str, Any]) -> dict[str, Any]:
        """Return the only optimizer with as many parameters as the model, total or trainable; {} if it is not unique.

        A DeepSpeed optimizer holds only part of the parameters, so it matches any trainable model if no other does.
        """
        counts = (model.get("trainable"), model.get("parameters"))
        optimizers = list(self._optimizers.values())
        matches = [optimizer for optimizer in optimizers if optimizer.get("parameters") in counts]
        if not matches and model.get("trainable"):
            matches = [optimizer for optimizer in optimizers if "deepspeed" in optimizer.get("driven_by", ())]
        return matches[0] if len(matches) == 1 else {}

    def _file(self, path: str) -> File | None:
        """Return the parsed file; None if it is not source of moderate size, or has changed since it was imported."""
        if path not in self._files and len(self._files) < MOST_FILES:
            self._files[path] = None
            with contextlib.suppress(OSError, SyntaxError, ValueError, RecursionError, MemoryError):
                status = os.stat(path)
                is_source = path.endswith(".py") and stat.S_ISREG(status.st_mode) and status.st_size <= MOST_BYTES
                if is_source and status.st_mtime <= self._since:
                    self._files[path] = File(ast.parse(Path(path).read_bytes()))
        return self._files.get(path)


def _driver(optimizer: Mapping[str, Any]) -> str:
    return next(iter(optimizer.get("driven_by", ())), "")


def _call_fact(id: str, name: str, path: str, call: ast.Call, settings: dict[str, str]) -> dict[str, Any]:
    return {"id": id, "name": name, "place": {"file": path, "line": call.lineno}, "settings": settings}


class File:
    """The syntax of one file."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree

    def target(self, line: int) -> str | None:
        """Return the one name to which the statement on this line assigns a value."""
        statement, _ = self._at(line)
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            return _dotted(statement.targets[0]) or None
        return _dotted(statement.target) or None if isinstance(statement, ast.AnnAssign) else None

    def model(self, line: int, framework: str = "") -> str | None:
        """Return the model that the statement on this line hands to an optimizer or framework. None if ambiguous."""
        statement, scope = self._at(line)
        names = set() if statement is None else self._models(statement, scope, framework)
        return names.pop() if len(names) == 1 else None

    def made(self, name: str, line: int, cls: str) -> int | None:
        """Return the earlier line on which `name` is made by a call that does not take `name` itself.

        If there are several, return the one that calls `cls`; None if it is not unique.
        """
        for scope in (self._at(line)[1], self._tree):
            makers = [
                assignment
                for assignment in _assignments(scope, name)
                if assignment.lineno < line and _calls(assignment) and name not in _names(assignment.value)
            ]
            if len(makers) > 1:
                makers = [assignment for assignment in makers if cls in map(_last, _calls(assignment))]
            if makers:
                return makers[0].lineno if len(makers) == 1 else None
        return None

    def calls(self, wanted: Callable[[ast.Call], bool]) -> list[ast.Call]:
        """Return the calls in the file that are wanted."""
        return [node for node in ast.walk(self._tree) if isinstance(node, ast.Call) and wanted(node)]

    # ---- within ----

    def _models(self, node: ast.AST, scope: ast.AST, framework: str, deep: int = 2) -> set[str]:
        """Return `X` of X.parameters(), fit(X) or initialize(model=X).

        Assigned names are followed up to `deep` times.
        """
        calls = [expression for expression in ast.walk(node) if isinstance(expression, ast.Call)]
        owners = [expression.func for expression in calls if _last(expression.func) in _OF_A_MODEL]
        names = {_dotted(expression.value) for expression in owners if isinstance(expression, ast.Attribute)}
        names |= {_dotted(model) for expression in calls if (model := _handed_over(expression, framework))}
        if deep and not names:
            for name in set(_names(node)):
                for maker in _assignments(scope, name):
                    if maker is not node and maker.value is not None:
                        names |= self._models(maker.value, scope, framework, deep - 1)
        return names - {""}

    def _at(self, line: int) -> tuple[ast.stmt | None, ast.AST]:
        """Return the innermost statement on a line, and the function around it or the file."""
        statements = (node for node in ast.walk(self._tree) if isinstance(node, ast.stmt))
        enclosing = [node for node in statements if node.lineno <= line <= (node.end_lineno or node.lineno)]
        functions = [node for node in enclosing if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        return enclosing[-1] if enclosing else None, functions[-1] if functions else self._tree


_OF_A_MODEL = frozenset(("parameters", "named_parameters", "configure_optimizers"))

# Calls that take the model as their first argument, by the end of their names.
_TAKES_A_MODEL = {"lightning": "fit", "transformers": "Trainer", "deepspeed": "initialize"}


def _handed_over(call: ast.Call, framework: str) -> ast.expr | None:
    suffix = _TAKES_A_MODEL.get(framework)
    if suffix is None or not _last(call.func).endswith(suffix):
        return None
    return next(
        (keyword.value for keyword in call.keywords if keyword.arg == "model"), call.args[0] if call.args else None
    )


def _configures(call: ast.Call, framework: str) -> bool:
    name = _last(call.func)
    if framework == "deepspeed":
        return name in CALLS[framework] and _dotted(call.func).startswith("deepspeed.")
    if framework == "transformers" and any(keyword.arg == "per_device_train_batch_size" for keyword in call.keywords):
        return True  # a subclass, such as trl's SFTConfig
    return name in CALLS[framework]


def _assignments(scope: ast.AST, name: str) -> list[ast.Assign | ast.AnnAssign]:
    """Return the assignments to `name` in this scope itself, not in functions inside it."""
    assignments = []
    queue = list(ast.iter_child_nodes(scope))
    while queue:
        node = queue.pop(0)
        if isinstance(node, _FUNCTIONS):
            continue
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            items = [item for target in targets for item in getattr(target, "elts", [target])]
            if name in map(_dotted, items):
                assignments.append(node)
        queue += ast.iter_child_nodes(node)
    return sorted(assignments, key=lambda node: node.lineno)


def _calls(statement: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    """Return what is called in the assigned value."""
    return [node.func for node in ast.walk(statement) if isinstance(node, ast.Call)]


def _names(node: ast.AST | None) -> list[str]:
    """Return the names that are read in a node."""
    return [name for child in ast.walk(node) if (name := _dotted(child))] if node else []


def _settings(call: ast.Call) -> dict[str, str]:
    """Return the arguments of a call that are plain settings."""
    settings = {}
    for keyword in call.keywords:
        if keyword.arg is None or not isinstance(keyword.value, ast.Constant):
            continue
        value = keyword.value.value
        is_word = isinstance(value, str) and keyword.arg in WORDS and len(value) <= MOST_WORD
        if is_word or value is None or isinstance(value, bool | int | float):
            settings[keyword.arg] = json.dumps(value) if isinstance(value, str) else repr(value)
    return settings


def _dotted(node: ast.AST) -> str:
    """Return a name as it is written, such as "model" or "self.net"; empty for anything but names."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := _dotted(node.value)):
        return f"{owner}.{node.attr}"
    return ""


def _last(node: ast.AST) -> str:
    return _dotted(node).rpartition(".")[2]
