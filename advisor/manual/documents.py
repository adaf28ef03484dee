"""All of them, by their paths."""

from __future__ import annotations

import json
from pathlib import Path

from advisor.manual import commands, metrics, result, rules, store
from advisor.metrics import all_metrics
from advisor.rules import all_rules


def documents(root: Path) -> dict[str, str]:
    """What each is to hold, by its path below the root of the repository.

    Raises:
        ProfilerError: the README has no place for the rules.
    """
    readme = (root / "README.md").read_text(encoding="utf-8")
    schema = json.loads((root / "docs" / "result.schema.json").read_text(encoding="utf-8"))
    return {
        "README.md": rules.with_overview(readme, all_rules()),
        "docs/commands.md": commands.document(),
        "docs/metrics.md": metrics.document(all_metrics()),
        "docs/result.md": result.document(schema),
        "docs/rules.md": rules.document(all_rules()),
        "docs/store.md": store.document(),
    }
