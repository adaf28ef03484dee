"""Who may import whom. This table is the architecture: a part may import the parts after its name, and itself."""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

COMMON = (
    "profiler.child profiler.errors profiler.grouping profiler.options profiler.ours profiler.printable "
    "profiler.private profiler.reading profiler.schema profiler.signals profiler.quantile_sketch profiler.version"
)
WAYS_IN = "profiler.attach profiler.integrations profiler.launch profiler.sandbox profiler.session profiler.trial"
SMALL = "advisor advisor.atomic_write advisor.entry.profile_train_pytest advisor.models advisor.stats advisor.units"
RULES = "advisor.rules advisor.testing"
COMMANDS = "advisor.compare advisor.doctor advisor.export advisor.watch"
FLEET = "advisor.fleet"
JUDGED = ("advisor.judging", "advisor.metrics", "advisor.runs")

# One row per part: its packages and modules, and the other parts that they may import.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    # profiler: records
    "profiler": (WAYS_IN, COMMON),  # the public names
    COMMON: (),
    "profiler.agent": (),  # runs in the training process
    "profiler.importers profiler.store": (COMMON, "profiler.agent.redact"),
    "profiler.recorder": (COMMON, "profiler", "profiler.agent", "profiler.importers", "profiler.store"),
    WAYS_IN: (COMMON, "profiler.agent", "profiler.recorder"),
    # advisor: judges
    SMALL: (COMMON,),
    "advisor.runs": (
        COMMON,
        SMALL,
        "profiler.agent.redact",
        "profiler.importers",
        "profiler.recorder",
        "profiler.store",
    ),
    "advisor.metrics": (COMMON, SMALL, "advisor.runs", "profiler.store"),
    RULES: (COMMON, SMALL, "advisor.metrics"),  # metrics only, never a run
    "advisor.patches": (RULES, "profiler.agent.redact"),  # the program's source, no run
    "advisor.plan": (COMMON, SMALL),  # without a run
    "advisor.settings": (COMMON, RULES, "advisor.metrics", "advisor.plan"),
    "advisor.judging": (COMMON, SMALL, RULES, "advisor.metrics"),
    "advisor.verify": (
        *(
            COMMON,
            SMALL,
            *JUDGED,
            RULES,
            "profiler.agent.redact",
            "profiler.recorder",
            "profiler.store",
            "profiler.sandbox",
            "profiler.trial",
        ),
    ),
    "advisor.report": (COMMON, SMALL, *JUDGED, RULES, FLEET, "advisor.patches", "advisor.verify.kept"),
    COMMANDS: (
        *(COMMON, SMALL, *JUDGED, WAYS_IN, "advisor.report", "advisor.settings", "profiler.agent.installed"),
        *("profiler.recorder", "profiler.store"),
    ),
    FLEET: (COMMON, "profiler.store"),  # what runs hold, without judging them again
    # Renderers see the report and the types that it is made of.
    "advisor.report.render": (
        *(COMMON, SMALL, RULES, COMMANDS, FLEET, "advisor.judging", "advisor.plan", "advisor.report", "advisor.runs"),
        "advisor.verify",
    ),
    "advisor.cli advisor.manual advisor.mcp advisor.publish": (
        *(COMMON, SMALL, *JUDGED, RULES, COMMANDS, WAYS_IN, FLEET, "advisor.plan", "advisor.report"),
        *(
            "advisor.patches",
            "advisor.report.render",
            "advisor.settings",
            "advisor.verify",
            "profiler.recorder",
            "profiler.store",
        ),
    ),
}


def modules() -> list[str]:
    return sorted(name(path) for package in ("profiler", "advisor") for path in (ROOT / package).rglob("*.py"))


def name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def source(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def imports(module: str, *, late: bool = True) -> set[str]:
    """Return the modules that `module` imports, relative ones resolved; without `late`, only those at its top."""
    path = source(module)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    found = set()
    for node in ast.walk(tree) if late else tree.body:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*start, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{origin}.{alias.name}"
                found.add(inner if is_ours(inner) and source(inner).exists() else origin)
    return found


def is_ours(module: str) -> bool:
    return module.split(".")[0] in ("profiler", "advisor")


def is_in(module: str, part: str) -> bool:
    """Return whether the module is, or is under, one of the part's names; a root's own name stands for its __init__."""
    return any(module == name or ("." in name and module.startswith(name + ".")) for name in part.split())


def part(module: str) -> str | None:
    """Return the row of the longest name that the module is, or is under."""
    names = {name: row for row in MAY_IMPORT for name in row.split() if is_in(module, name)}
    return names[max(names, key=len)] if names else None


def test_a_module_imports_only_what_its_part_may(subtests: pytest.Subtests) -> None:
    for module in modules():
        with subtests.test(module):
            mine = part(module)
            assert mine, f"{module} belongs to no part: add it to MAY_IMPORT"
            for imported in filter(is_ours, imports(module)):
                theirs = part(imported)
                # "profiler.agent.redact" allows that module only.
                open_to_it = theirs == mine or any(
                    theirs == door or (door not in MAY_IMPORT and is_in(imported, door)) for door in MAY_IMPORT[mine]
                )
                assert open_to_it, f"{module} imports {imported}, but {mine} may see only: {MAY_IMPORT[mine]}"


def test_agent_imports_only_the_standard_library_and_torch(
    subtests: pytest.Subtests,
) -> None:
    ours = {"profiler", "_profile_train_agent"}
    for module in (module for module in modules() if module.startswith("profiler.agent")):
        with subtests.test(module):
            assert {i.split(".")[0] for i in imports(module)} - sys.stdlib_module_names - ours <= {"torch"}
            at_the_top = {i.split(".")[0] for i in imports(module, late=False)}
            assert "torch" not in at_the_top, "the program imports torch first; we only use it from inside a hook"


# Parts that run in the program's process may import what the program imports.
BESIDE_TORCH = ("profiler.agent", "profiler.integrations")


def test_nothing_outside_the_agent_imports_torch(subtests: pytest.Subtests) -> None:
    for module in (module for module in modules() if not module.startswith(BESIDE_TORCH)):
        with subtests.test(module):
            assert "torch" not in {imported.split(".")[0] for imported in imports(module)}


def test_every_part_in_the_import_table_exists() -> None:
    assert all(source(name).exists() for row in MAY_IMPORT for name in row.split())


def test_every_import_allowed_by_the_table_is_used(subtests: pytest.Subtests) -> None:
    seen: dict[str | None, set[str]] = {}
    for module in modules():
        seen.setdefault(part(module), set()).update(imports(module))
    for mine, doors in MAY_IMPORT.items():
        with subtests.test(mine):
            assert not [door for door in doors if not any(is_in(used, door) for used in seen.get(mine, ()))]


def test_import_table_has_no_cycles() -> None:
    """The parts form floors: no part sees itself through others."""
    below = {row: {part(door.split()[0]) for door in doors} for row, doors in MAY_IMPORT.items()}
    # The public names of `profiler` import the session; other parts only take its version.
    below["profiler"] = set()
    resolved: set[str] = set()
    while rest := {row for row in below if row not in resolved}:
        free = {row for row in rest if below[row] <= resolved}
        assert free, f"these import one another in a circle: {sorted(rest)}"
        resolved |= free
