"""Who may import whom. This table is the architecture: a part of ours sees the parts behind its name, and itself."""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

MAY_IMPORT = {
    # profiler: records
    "profiler": "profiler.integrations.jupyter profiler.session profiler.version",  # its __init__, the public names
    "profiler.version": "",
    "profiler.errors": "",
    "profiler.ours": "",
    "profiler.printable": "",
    "profiler.schema": "",
    "profiler.agent": "",  # runs in the training process
    "profiler.sketch": "profiler.schema",
    "profiler.store": "profiler.agent.redact profiler.errors profiler.schema",
    "profiler.recorder": (
        "profiler profiler.agent.ranks profiler.agent.redact profiler.agent.ring profiler.errors profiler.importers"
        " profiler.ours profiler.printable profiler.schema profiler.sketch profiler.store"
    ),
    "profiler.importers": "profiler.agent.redact profiler.errors profiler.schema",
    "profiler.launch": "profiler.errors profiler.printable profiler.recorder",
    "profiler.attach": "profiler.agent.redact profiler.errors profiler.launch profiler.recorder",
    "profiler.sandbox": "profiler.errors",
    "profiler.trial": (
        "profiler.agent.redact profiler.errors profiler.launch profiler.recorder.private profiler.sandbox"
    ),
    "profiler.session": (
        "profiler.agent profiler.errors profiler.launch profiler.ours profiler.printable profiler.recorder"
    ),
    "profiler.integrations": "profiler.ours profiler.printable profiler.session",  # beside somebody else's package
    # advisor: judges
    "advisor": "",
    "advisor.units": "",
    "advisor.whole": "profiler.errors profiler.ours",  # files that are there whole or not at all
    "advisor.clocks": "profiler.schema",  # of several recordings
    "advisor.profile": "advisor.clocks profiler.schema profiler.store",
    "advisor.nodes": "advisor.clocks advisor.units profiler.schema profiler.store",
    "advisor.load": "advisor.nodes advisor.profile profiler.errors profiler.schema profiler.store",
    "advisor.metrics": (
        "advisor.models advisor.profile advisor.significance advisor.units profiler.schema profiler.sketch"
        " profiler.store"
    ),
    "advisor.models": "",
    "advisor.plan": "advisor.models advisor.units profiler.errors",  # without a run
    "advisor.significance": "",
    "advisor.equivalence": "advisor.significance",
    "advisor.verify.verdict": "",  # what a trial can end with
    "advisor.calibration": "advisor.models advisor.units advisor.verify.verdict",
    "advisor.calibration_file": "advisor.calibration advisor.models advisor.verify.verdict profiler.errors",
    "advisor.rules": "advisor.metrics advisor.models advisor.units profiler.schema",  # metrics only, never a profile
    "advisor.testing": "advisor.metrics advisor.models advisor.rules",  # cases of rules, ours and a user's
    "advisor.own_rules": "advisor.rules profiler.errors",
    "advisor.declared": "advisor.metrics advisor.plan profiler.errors",
    "advisor.trust": "",
    "advisor.config": (
        "advisor.declared advisor.metrics advisor.own_rules advisor.rules advisor.trust profiler.errors"
    ),
    "advisor.baseline": "advisor.metrics advisor.models",
    "advisor.judge": "advisor.baseline advisor.calibration advisor.metrics advisor.models advisor.rules",
    "advisor.pages": "advisor.calibration advisor.metrics advisor.rules profiler.errors",
    "advisor.environment": "advisor.profile profiler.schema",
    "advisor.timeline": "advisor.profile profiler.schema",
    "advisor.traces": "advisor.profile profiler.errors profiler.importers profiler.schema",
    "advisor.operations": "advisor.profile",
    "advisor.ranks": "advisor.metrics advisor.profile advisor.units profiler.schema",
    "advisor.verify": (
        "advisor.calibration advisor.calibration_file advisor.equivalence advisor.judge advisor.load advisor.metrics"
        " advisor.models advisor.probe advisor.profile advisor.rules advisor.significance advisor.units"
        " advisor.verify.verdict advisor.whole profiler.agent.redact profiler.errors profiler.ours profiler.printable"
        " profiler.recorder.folder"
        " profiler.schema profiler.store profiler.trial profiler.version"
    ),
    "advisor.anatomy": "advisor.metrics advisor.models",
    "advisor.quantities": "advisor.metrics advisor.pages advisor.units",
    "advisor.report": (
        "advisor.anatomy advisor.environment advisor.judge advisor.metrics advisor.operations advisor.quantities"
        " advisor.ranks advisor.rules advisor.timeline advisor.traces advisor.units advisor.verify.kept profiler.schema"
    ),
    "advisor.build_report": (
        "advisor.anatomy advisor.calibration advisor.environment advisor.judge advisor.metrics advisor.operations"
        " advisor.pages advisor.profile advisor.quantities advisor.ranks advisor.report advisor.rules advisor.timeline"
        " advisor.traces advisor.verify.kept profiler.schema profiler.version"
    ),
    "advisor.conclusion": "advisor.judge advisor.metrics advisor.report",
    "advisor.wording": "advisor.conclusion advisor.judge advisor.metrics advisor.report advisor.units",
    "advisor.compare": "advisor.environment advisor.metrics advisor.profile advisor.significance profiler.schema",
    "advisor.doctor": (
        "advisor.metrics advisor.units profiler.agent.installed profiler.attach profiler.errors"
        " profiler.launch profiler.recorder profiler.sandbox profiler.schema profiler.store"
    ),
    "advisor.watch": (
        "advisor.judge advisor.load advisor.metrics advisor.own_rules advisor.profile profiler.errors profiler.recorder"
        " profiler.schema profiler.store"
    ),
    "advisor.export": (
        "advisor.clocks advisor.metrics advisor.profile advisor.quantities advisor.whole profiler.errors"
        " profiler.printable profiler.schema profiler.store profiler.version"  # what others' tools read
    ),
    # renderers see the report, and the types that it is made of
    "advisor.render": (
        "advisor.anatomy advisor.compare advisor.conclusion advisor.doctor advisor.environment advisor.judge"
        " advisor.models.cost advisor.models.effects advisor.models.sharding advisor.plan advisor.quantities"
        " advisor.ranks advisor.report advisor.rules.base advisor.timeline advisor.traces advisor.units advisor.verify"
        " advisor.verify.verdict"
        " advisor.watch advisor.wording profiler.ours profiler.printable profiler.schema profiler.version"
    ),
    "advisor.publish": (
        "advisor.build_report advisor.calibration advisor.judge advisor.load advisor.metrics advisor.own_rules"
        " advisor.render advisor.report advisor.traces advisor.verify.kept advisor.whole profiler.errors"
        " profiler.schema"
    ),
    "advisor.entry.profile_train_pytest": "",  # every pytest loads it
    "advisor.merge": "advisor.nodes profiler.errors profiler.recorder profiler.store",
    "advisor.probe": "advisor.load advisor.metrics advisor.rules.base advisor.units profiler.recorder",
    "advisor.manual": ("advisor.cli advisor.metrics advisor.pages advisor.rules profiler.schema profiler.store"),
    "advisor.cli": (
        "advisor.calibration advisor.calibration_file advisor.compare advisor.config advisor.declared"
        " advisor.doctor advisor.export advisor.load advisor.merge advisor.metrics advisor.own_rules advisor.pages"
        " advisor.plan advisor.probe advisor.publish advisor.render advisor.report advisor.rules advisor.traces"
        " advisor.verify advisor.watch advisor.whole profiler profiler.attach profiler.errors profiler.launch"
        " profiler.ours profiler.printable profiler.recorder profiler.trial"
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
    """The modules that `module` imports, relative ones resolved; without `late`, only those at its top."""
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


def part(module: str) -> str | None:
    """The longest name of the table that the module is, or lies under; a package's own name stands for its __init__."""
    names = [key for key in MAY_IMPORT if module == key or ("." in key and module.startswith(key + "."))]
    return max(names, key=len, default=None)


def test_a_module_imports_only_what_its_part_may(subtests: pytest.Subtests) -> None:
    for module in modules():
        with subtests.test(module):
            mine = part(module)
            assert mine, f"{module} belongs to no part: say in MAY_IMPORT where it stands"
            allowed = set(MAY_IMPORT[mine].split())
            for imported in filter(is_ours, imports(module)):
                theirs = part(imported)
                # "profiler.agent.ring" opens that module alone; "profiler" its __init__ alone.
                open_to_it = theirs == mine or theirs in allowed or imported in allowed
                assert open_to_it, (
                    f"{module} imports {imported}, but {mine} may see only: {MAY_IMPORT[mine] or 'itself'}"
                )


def test_the_agent_needs_nothing_but_the_standard_library_and_the_programs_own_torch(
    subtests: pytest.Subtests,
) -> None:
    ours = {"profiler", "_profile_train_agent"}
    for module in (module for module in modules() if module.startswith("profiler.agent")):
        with subtests.test(module):
            assert {i.split(".")[0] for i in imports(module)} - sys.stdlib_module_names - ours <= {"torch"}
            at_the_top = {i.split(".")[0] for i in imports(module, late=False)}
            assert "torch" not in at_the_top, "the program imports torch first; we only use it from inside a hook"


# What runs where the program does may use what the program does.
BESIDE_TORCH = ("profiler.agent", "profiler.integrations")


def test_nothing_outside_the_agent_imports_torch(subtests: pytest.Subtests) -> None:
    for module in (module for module in modules() if not module.startswith(BESIDE_TORCH)):
        with subtests.test(module):
            assert "torch" not in {imported.split(".")[0] for imported in imports(module)}


def test_the_table_names_no_part_that_is_gone() -> None:
    assert all(source(key).exists() for key in MAY_IMPORT)


def test_the_table_opens_no_door_that_nobody_goes_through(subtests: pytest.Subtests) -> None:
    seen: dict[str | None, set[str]] = {}
    for module in modules():
        seen.setdefault(part(module), set()).update(imports(module))
    for mine, allowed in MAY_IMPORT.items():
        with subtests.test(mine):
            used = seen.get(mine, set())
            assert not set(allowed.split()) - used - {part(imported) for imported in filter(is_ours, used)}


def test_the_table_has_no_way_up_again() -> None:
    """The parts form floors: nothing sees, through others, itself."""
    below = {key: {part(seen) for seen in seen_by.split()} for key, seen_by in MAY_IMPORT.items()}
    # The public names of `profiler` lead to the session; what others take from there is its version.
    below["profiler"] = set()
    resolved: set[str] = set()
    while rest := {key for key in below if key not in resolved}:
        free = {key for key in rest if below[key] <= resolved}
        assert free, f"these import one another in a circle: {sorted(rest)}"
        resolved |= free
