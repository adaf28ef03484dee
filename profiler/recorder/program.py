"""What the program's source says of the objects the agent has seen: how they are called, and where they are made.

Only read, never run: the syntax of the files in which the agent saw things made, as soon as it tells of them and only
while they are as they were when they were run. Where the source leaves a doubt nothing is said.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

MOST_BYTES = 1 << 18
"""Of a file that is read: a script of thousands of lines, parsed in a fifth of a second."""

MOST_FILES = 16
MOST_WORD = 40

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)

# What configures each framework, by the last part of its name.
CALLS: dict[str, tuple[str, ...]] = {
    "transformers": ("TrainingArguments", "Seq2SeqTrainingArguments"),
    "lightning": ("Trainer",),
    "fabric": ("Fabric",),
    "accelerate": ("Accelerator",),
    "deepspeed": ("initialize",),
}

# Arguments of these calls whose text is a choice among words, or the name of a configuration file.
WORDS = frozenset(("precision", "mixed_precision", "optim", "strategy", "config", "deepspeed", "profiler", "fsdp"))


class Program:
    """The source of one process, file by file as it is asked for, and the facts completed by it."""

    def __init__(self) -> None:
        self._files: dict[str, File | None] = {}
        self._optimizers: dict[Any, dict[str, Any]] = {}
        self._told: set[str] = set()

    def complete(self, kind: str, fact: dict[str, Any], now: float) -> list[dict[str, Any]]:
        """Add to a loader's, an optimizer's or a model's fact what the source says; gives back the facts of kind "call"
        that are new. `now` is the Unix time at which the fact was told."""
        with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):  # a damaged line
            if kind in ("loader", "optimizer"):
                fact["variable"] = self._variable(fact, now)
            if kind == "optimizer":
                self._optimizers[fact["id"]] = fact
                return self._call(fact, now)
            if kind == "model":
                self._name_model(fact, now)
        return []

    def _variable(self, fact: Mapping[str, Any], now: float) -> str | None:
        """Of what was made in its place by the program itself, and not by a framework on its behalf."""
        place = fact.get("place")
        if not place or place.get("via"):
            return None
        file = self._file(place["file"], now)
        return file.target(place["line"]) if file else None

    def _call(self, optimizer: Mapping[str, Any], now: float) -> list[dict[str, Any]]:
        """The one call that configures the framework which drives the loop, in the files that led to the optimizer."""
        framework = _driver(optimizer)
        if framework not in CALLS or framework in self._told:
            return []
        for path in dict.fromkeys(line["file"] for line in optimizer.get("callers", ())):
            file = self._file(path, now)
            calls = list(file.configuring(framework)) if file else []
            if len(calls) == 1:
                self._told.add(framework)
                (call,) = calls
                place = {"file": path, "line": call.lineno}
                return [{"id": framework, "name": _last(call.func), "place": place, "settings": _settings(call)}]
        return []

    def _name_model(self, fact: dict[str, Any], now: float) -> None:
        """By the optimizer that updates it: its parameters are counted alike."""
        optimizer = self._updating(fact)
        for line in optimizer.get("callers", ()):
            file = self._file(line["file"], now)
            name = file.model(line["line"], _driver(optimizer)) if file else None
            if file and name and name != "self":
                fact["variable"] = name
                made = file.made(name, line["line"], str(fact.get("name")))
                if made:
                    fact["place"] = {"file": line["file"], "line": made}
                return

    def _updating(self, model: Mapping[str, Any]) -> dict[str, Any]:
        """The optimizer with as many parameters, all or those that are trained; DeepSpeed's hold parts of them."""
        counts = (model.get("trainable"), model.get("parameters"))
        optimizers = list(self._optimizers.values())
        mine = [one for one in optimizers if one.get("parameters") in counts]
        if not mine and model.get("trainable"):
            mine = [one for one in optimizers if "deepspeed" in one.get("driven_by", ())]
        return mine[0] if len(mine) == 1 else {}

    def _file(self, path: str, now: float) -> File | None:
        if path not in self._files and len(self._files) < MOST_FILES:
            self._files[path] = _parsed(path, now)
        return self._files.get(path)


def _driver(optimizer: Mapping[str, Any]) -> str:
    return next(iter(optimizer.get("driven_by", ())), "")


def _parsed(path: str, now: float) -> File | None:
    """None for what is no source of moderate size, or has changed since `now`."""
    try:
        status = os.stat(path)
        if not path.endswith(".py") or not stat.S_ISREG(status.st_mode):
            return None
        if status.st_size > MOST_BYTES or status.st_mtime > now:
            return None
        return File(ast.parse(Path(path).read_bytes()))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class File:
    """The syntax of one file."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree

    def target(self, line: int) -> str | None:
        """The one name that the statement on this line gives a value to."""
        statement = self._statement(line)
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            return _dotted(statement.targets[0])
        return _dotted(statement.target) if isinstance(statement, ast.AnnAssign) else None

    def model(self, line: int, framework: str = "") -> str | None:
        """The model whose parameters the statement on this line hands to an optimizer, or which it hands to the
        framework; None if there are several."""
        statement = self._statement(line)
        names = set() if statement is None else self._models(statement, self._scope(line), framework)
        return names.pop() if len(names) == 1 else None

    def made(self, name: str, line: int, cls: str) -> int | None:
        """The line above this one on which `name` is made: by a call that does not take it in turn. Of several, the one
        that calls `cls`."""
        for scope in (self._scope(line), self._tree):
            makers = [
                each
                for each in _assignments(scope, name)
                if each.lineno < line and _calls(each) and name not in _names(each.value)
            ]
            if len(makers) > 1:
                makers = [each for each in makers if cls in map(_last, _calls(each))]
            if makers:
                return makers[0].lineno if len(makers) == 1 else None
        return None

    def configuring(self, framework: str) -> Iterator[ast.Call]:
        """The calls that configure it."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call) and _configures(node, framework):
                yield node

    # ---- within ----

    def _models(self, node: ast.AST, scope: ast.AST, framework: str, deep: int = 2) -> set[str]:
        """`X` of X.parameters(), of fit(X) or initialize(model=X), or the same of what the names in it stand for."""
        calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
        owners = [each.func for each in calls if _last(each.func) in _OF_A_MODEL]
        found = {_dotted(each.value) for each in owners if isinstance(each, ast.Attribute)}
        found |= {_dotted(model) for each in calls if (model := _handed_over(each, framework))}
        if found or not deep:
            return {name for name in found if name}
        for name in set(_names(node)):
            for maker in _assignments(scope, name):
                if maker is not node and maker.value is not None:
                    found |= self._models(maker.value, scope, framework, deep - 1)
        return {name for name in found if name}

    def _statement(self, line: int) -> ast.stmt | None:
        """The innermost."""
        found = None
        for node in ast.walk(self._tree):
            if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
                found = node  # what is walked later lies deeper
        return found

    def _scope(self, line: int) -> ast.AST:
        """The function around this line, or the file."""
        found: ast.AST = self._tree
        for node in ast.walk(self._tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
                node.lineno <= line <= (node.end_lineno or node.lineno)
            ):
                found = node
        return found


_OF_A_MODEL = frozenset(("parameters", "named_parameters", "configure_optimizers"))

# What takes the model as its first argument, by the end of its name.
_TAKES_A_MODEL = {"lightning": "fit", "transformers": "Trainer", "deepspeed": "initialize"}


def _handed_over(call: ast.Call, framework: str) -> ast.expr | None:
    takes = _TAKES_A_MODEL.get(framework)
    if takes is None or not _last(call.func).endswith(takes):
        return None
    return next((each.value for each in call.keywords if each.arg == "model"), call.args[0] if call.args else None)


def _configures(call: ast.Call, framework: str) -> bool:
    name = _last(call.func)
    if framework == "deepspeed":
        return name in CALLS[framework] and _base(call.func) == "deepspeed"
    if framework == "transformers" and any(each.arg == "per_device_train_batch_size" for each in call.keywords):
        return True  # a descendant, as trl's SFTConfig
    return name in CALLS[framework]


def _assignments(scope: ast.AST, name: str) -> list[ast.Assign | ast.AnnAssign]:
    """Those of `name` in this scope itself, not in functions inside it."""
    found = []
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, _FUNCTIONS):
            continue
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            each = [item for target in targets for item in getattr(target, "elts", [target])]
            if name in map(_dotted, each):
                found.append(node)
        waiting += ast.iter_child_nodes(node)
    return sorted(found, key=lambda node: node.lineno)


def _calls(statement: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    """What is called in its value."""
    return [node.func for node in ast.walk(statement) if isinstance(node, ast.Call)]


def _names(node: ast.AST | None) -> list[str]:
    """Those that are read in it."""
    if node is None:
        return []
    read = [_dotted(each) for each in ast.walk(node) if isinstance(each, ast.Name | ast.Attribute)]
    return [name for name in read if name]


def _settings(call: ast.Call) -> dict[str, str]:
    """Its arguments that tell nothing but a setting."""
    found = {}
    for each in call.keywords:
        if each.arg is None or not isinstance(each.value, ast.Constant):
            continue
        value = each.value.value
        word = isinstance(value, str) and each.arg in WORDS and len(value) <= MOST_WORD
        if word or value is None or isinstance(value, bool | int | float):
            found[each.arg] = json.dumps(value) if isinstance(value, str) else repr(value)
    return found


def _dotted(node: ast.AST) -> str | None:
    """The name as it is written, as "model" or "self.net"; None for anything but names."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value)):
        return f"{before}.{node.attr}"
    return None


def _last(node: ast.AST) -> str:
    return (_dotted(node) or "").rpartition(".")[2]


def _base(node: ast.AST) -> str:
    return (_dotted(node) or "").partition(".")[0]
