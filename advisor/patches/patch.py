"""Turn an intervention into a unified diff of the program's source, if a line of source can hold it."""

import ast
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.patches.calls import at_line, calls, with_arguments
from advisor.patches.source import Edit, NoPatch, SourceFile, unified
from advisor.rules.base import Intervention
from profiler.agent.redact import redact_text

MOST_BYTES = 1 << 21
"""Largest file to read, in bytes: a run is not trusted, and may name any file."""

LOADER = {"num_workers": 5, "pin_memory": 7, "prefetch_factor": None, "persistent_workers": None}
"""Arguments of DataLoader that an intervention sets, and their positions; None if they are keyword-only."""

WITHOUT_WORKERS: dict[str, object] = {"prefetch_factor": None, "persistent_workers": False, "timeout": 0}
"""Arguments for which DataLoader accepts only these values if it has no workers."""

SWITCHES = {"matmul_precision": "set_float32_matmul_precision", "threads": "set_num_threads"}
"""Settings, and the functions of torch that set them."""

UNKNOWN = "No line of the program was found for this change: make it by hand."
BY_HAND = {
    "environment": "It is an environment variable, which no line of the program sets.",
    "loader": "It also makes copies to the GPU non-blocking, which is not an argument of the loader.",
}


@dataclass(frozen=True, slots=True)
class Patch:
    """A unified diff for `git apply` in `folder`."""

    folder: Path
    file: Path
    diff: bytes

    @property
    def text(self) -> str:
        """Return the diff as text to show.

        Raises:
            NoPatch: it is not UTF-8, or a line of it seems to hold a secret.
        """
        try:
            text = self.diff.decode()
        except UnicodeDecodeError:
            raise NoPatch(f"{self.file.name} is not UTF-8, so the patch is written to a file only.") from None
        if any(redact_text(line) != line for line in text.splitlines()):
            raise NoPatch(f"A line of {self.file.name} next to the change seems to contain a secret.")
        return text


def patch(change: Intervention, words: Sequence[str], cwd: str, since: float | None = None) -> Patch:
    """Return the change as a patch of the program that these words start in `cwd`.

    Raises:
        NoPatch: no line of source can hold the change, or the line cannot be identified with certainty; or the file
            has changed after `since`, a Unix time.
    """
    settings = change.settings
    edit = {"loader": _loader, "fused_optimizer": _fused, "flags": _flags}.get(change.name)
    if edit is None or settings.get("non_blocking"):
        raise NoPatch(BY_HAND.get(change.name, UNKNOWN))
    file = Path(cwd, str(settings["file"])) if "file" in settings else _script(words, cwd)
    try:
        file = file.resolve(strict=True)
        status = file.stat()
        if file.suffix != ".py" or not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES:
            raise NoPatch(f"{file} is not a Python script.")
        if since is not None and status.st_mtime > since:
            raise NoPatch(f"{file.name} has changed since the run: record again.")
        before = SourceFile(file.read_bytes())
    except (OSError, RuntimeError) as error:
        raise NoPatch(f"{file} cannot be read: {error}.") from None
    after = edit(before, settings)
    if after.content == before.content:
        raise NoPatch(f"{file.name} already has the advised setting.")
    home = Path(cwd).resolve()
    default = home if file.is_relative_to(home) else file.parent
    folder = next((folder for folder in file.parents if (folder / ".git").exists()), default)
    return Patch(folder, file, unified(before.content, after.content, file.relative_to(folder).as_posix()))


def _script(words: Sequence[str], cwd: str) -> Path:
    """Return the program's script: the first word that names one."""
    for word in words:
        if word.endswith(".py") and Path(cwd, word).is_file():
            return Path(cwd, word)
    raise NoPatch("The command that started the program does not name a script.")


def _loader(source: SourceFile, settings: Mapping[str, Any]) -> SourceFile:
    arguments = {name: settings[name] for name in LOADER if settings.get(name) is not None}
    positions = {name: position for name, position in LOADER.items() if position is not None}
    without_workers = arguments.get("num_workers") == 0
    if without_workers:
        arguments = {name: value for name, value in arguments.items() if name not in WITHOUT_WORKERS}
    loader_calls = at_line(calls(source.tree, "torch", "DataLoader"), settings["line"])
    if not loader_calls:
        raise NoPatch(f"Its line {settings['line']} does not call torch's DataLoader.")
    edits = [
        edit
        for call in loader_calls
        for edit in with_arguments(source, call, arguments, positions, WITHOUT_WORKERS if without_workers else {})
    ]
    return _checked(source, edits, "torch", "DataLoader")


def _fused(source: SourceFile, settings: Mapping[str, Any]) -> SourceFile:
    name = str(settings["name"])
    optimizer_calls = calls(source.tree, "torch.optim", name)
    if len(optimizer_calls) != 1:
        raise NoPatch(
            f"The script creates {name} in {len(optimizer_calls)} places, and the change was tried on all of them."
            if optimizer_calls
            else f"The script does not create torch's {name} itself."
        )
    edits = with_arguments(source, optimizer_calls[0], {"fused": True}, {}, {"foreach": False})
    return _checked(source, edits, "torch.optim", name)


def _checked(source: SourceFile, edits: Sequence[Edit], package: str, name: str) -> SourceFile:
    """Return the edited source, if only arguments of these calls differ."""
    after = source.edited(edits)
    new_tree = SourceFile(after.content).tree  # a new tree, because it is modified here
    for call, original in zip(calls(new_tree, package, name), calls(source.tree, package, name), strict=True):
        call.args, call.keywords = original.args, original.keywords
    if ast.dump(new_tree) != ast.dump(source.tree):
        raise NoPatch("The edit would change more of the script than these arguments.")
    return after


def _flags(source: SourceFile, settings: Mapping[str, Any]) -> SourceFile:
    switches = {name: value for name, value in settings.items() if value is not None}
    if len(switches) != 1:
        raise NoPatch("It sets several switches at once.")
    ((name, value),) = switches.items()
    if name == "anomaly" and value is False:
        return _without_anomaly(source)
    if name in SWITCHES:
        switch_calls = calls(source.tree, "torch", SWITCHES[name])
        if any(len(call.args) != 1 or isinstance(call.args[0], ast.Starred) for call in switch_calls):
            raise NoPatch(f"The script calls {SWITCHES[name]} in a way that cannot be edited.")
        if switch_calls:
            return source.edited([Edit(*source.span(call.args[0]), repr(value)) for call in switch_calls])
        return _after_imports(source, f"{{}}.{SWITCHES[name]}({value!r})")
    if name == "cudnn_benchmark":
        if "cudnn.benchmark" in source.text:
            raise NoPatch("The script itself sets torch.backends.cudnn.benchmark.")
        return _after_imports(source, f"{{}}.backends.cudnn.benchmark = {value!r}")
    raise NoPatch(UNKNOWN)


def _without_anomaly(source: SourceFile) -> SourceFile:
    """Return the source with anomaly detection switched off wherever it is switched on."""
    edits = []
    for call in calls(source.tree, "torch", "set_detect_anomaly"):
        if call.args:
            edits.append(Edit(*source.span(call.args[0]), "False"))
    for call in calls(source.tree, "torch", "detect_anomaly"):
        if not isinstance(call.func, ast.Attribute):
            raise NoPatch("It imports detect_anomaly by name: remove its call by hand.")
        start, end = source.span(call)
        owner = source.text[slice(*source.span(call.func.value))]
        edits.append(Edit(start, end, f"{owner}.set_detect_anomaly(False)"))
    if not edits:
        raise NoPatch("The script does not turn on anomaly detection itself.")
    return source.edited(edits)


def _after_imports(source: SourceFile, code: str) -> SourceFile:
    """Return the source with `code` after the imports that follow torch's; `{}` in it stands for torch's name there."""
    name, last_line = None, 0
    for node in source.tree.body:
        if name and not isinstance(node, ast.Import | ast.ImportFrom):
            if node.lineno == last_line:
                raise NoPatch("Its imports share a line with other code.")
            break
        for alias in node.names if isinstance(node, ast.Import) and not name else ():
            if alias.name == "torch" or (alias.name.startswith("torch.") and not alias.asname):
                name = name or alias.asname or "torch"
        last_line = node.end_lineno or node.lineno
    if not name:
        raise NoPatch("The script does not `import torch` at its top.")
    offset = source.line_end(last_line)
    return source.edited([Edit(offset, offset, f"{source.newline * 2}{code.format(name)}")])
