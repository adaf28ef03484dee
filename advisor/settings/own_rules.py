"""Load your own rules, from installed packages (by entry point group) and from a folder or file.

A rule file is code, and loading it runs it. Rules are therefore never taken from a run's folder: they must be
installed or named.
"""

import hashlib
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from advisor.rules import all_rules, in_order, rule_of
from advisor.rules.base import Rule
from profiler.errors import ProfilerError

GROUP = "profile_train.rules"
"""Each entry point names a module with a RULE, or a package of such modules."""


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules to judge by."""

    rules: tuple[Rule, ...]
    broken: tuple[str, ...] = ()
    """Rules that could not be loaded and why, one line each."""


def load(path: Path | None = None) -> RuleSet:
    """Return the built-in rules, the installed ones, and those of the file or folder.

    A broken rule does not stop the others.

    Raises:
        ProfilerError: the path does not exist, or holds no rules.
    """
    rules = {rule.id: rule for rule in all_rules()}
    messages = []
    for origin, module_name in [*_installed(), *(_files(path) if path else ())]:
        try:
            module = importlib.import_module(module_name)
            rule = replace(rule_of(module), origin=module.__file__ or origin)
            if rule.id in rules:
                raise TypeError(f"a rule {rule.id} already exists")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a broken rule must not affect the others
            reason = str(error) if type(error) is TypeError else f"{type(error).__name__}: {error}"
            messages.append(
                f"The rule {module_name.rpartition('.')[2]} from {origin} was skipped: {' '.join(reason.split())}."
            )
        else:
            rules[rule.id] = rule
    return RuleSet(in_order(rules.values()), tuple(messages))


def _installed() -> Iterator[tuple[str, str]]:
    """Yield the origin and module name of each installed rule."""
    for entry in entry_points(group=GROUP):
        origin = f"the installed {entry.dist.name}" if entry.dist else "an installed package"
        try:
            spec = importlib.util.find_spec(entry.module)
        except Exception:  # noqa: BLE001 - raised by its parent package; importing it shows why
            spec = None
        folders = spec.submodule_search_locations if spec else None
        for module_name in [entry.module] if folders is None else _modules(entry.module, list(folders)):
            yield origin, module_name


def _files(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the origin and module name of each rule in a folder or file.

    The folder becomes a package under a private name. Its rules may share code in files that begin with an underscore,
    and its module names conflict with no others.
    """
    if not path.exists():
        raise ProfilerError(f"There is no file or folder {path}.", "Give a rule's file, or a folder of such files.")
    path = path.resolve()
    folder = path if path.is_dir() else path.parent
    package = ModuleType(f"_own_rules_{hashlib.sha256(bytes(folder)).hexdigest()[:12]}")
    package.__path__ = [str(folder)]
    module_names = _modules(package.__name__, package.__path__)
    if path.is_file():
        module_names = [
            module_name for module_name in module_names if path.name == f"{module_name.rpartition('.')[2]}.py"
        ]
    if not module_names:
        raise ProfilerError(f"There are no rules in {path}.", "Give a rule's file, or a folder of such files.")
    sys.modules[package.__name__] = package
    yield from ((str(path), module_name) for module_name in module_names)


def _modules(package: str, folders: list[str]) -> list[str]:
    return [f"{package}.{info.name}" for info in pkgutil.iter_modules(folders) if not info.name.startswith("_")]
