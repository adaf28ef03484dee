"""Generate docs/store.md: every table of a recording, and its columns."""

import ast
import dataclasses
import inspect
from collections.abc import Mapping

from advisor.manual import markdown
from profiler.schema import SCHEMA_VERSION
from profiler.store.tables import NAMES


def document() -> str:
    """Return docs/store.md: each table of a recording, and its columns."""
    parts = [
        "# The store",
        markdown.generated(of="`profiler/schema.py`"),
        f"A recording is an SQLite file, `run-<host>.db`, of schema version {SCHEMA_VERSION}. Times are seconds on the "
        'run clock, sizes bytes, shares 0 to 1; NULL is "not measured", never zero. A row whose `count` is more than 1 '
        "stands for that many merged neighbors and holds their means.",
    ]
    for cls, name in NAMES.items():
        parts += described(name, cls, {one.name: str(one.type) for one in dataclasses.fields(cls)})
    return markdown.document(*parts)


def described(name: str, cls: type, kinds: Mapping[str, str]) -> tuple[str, str, str]:
    """Return the section of a table: its title, its meaning, and its columns with their types."""
    said = meanings(cls)
    rows = [(f"`{one}`", f"`{kind}`", said.get(one, "")) for one, kind in kinds.items()]
    about = " ".join(inspect.cleandoc(cls.__doc__ or "").split())
    return f"## {name}", about, markdown.table(("Column", "Type", "Meaning"), rows)


def meanings(cls: type) -> dict[str, str]:
    """Return the docstring below each field of a dataclass."""
    (defined,) = ast.parse(inspect.getsource(cls)).body
    assert isinstance(defined, ast.ClassDef), "a dataclass"
    return {
        field.target.id: " ".join(inspect.cleandoc(below.value.value).split())
        for field, below in zip(defined.body, defined.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }
