"""Every generated document, by its path."""

import json
from pathlib import Path

from advisor.manual import commands, fleet, metrics, result, rules, store
from advisor.metrics import all_metrics
from advisor.rules import all_rules


def documents(root: Path) -> dict[str, str]:
    """Return what each document should hold, by its path below the root of the repository."""
    schema = json.loads((root / "docs" / "result.schema.json").read_text(encoding="utf-8"))
    return {
        "docs/commands.md": commands.document(),
        "docs/tables.md": fleet.document(),
        "docs/fleet.sql": fleet.sql(),
        "docs/metrics.md": metrics.document(all_metrics()),
        "docs/result.md": result.document(schema),
        "docs/rules.md": rules.document(all_rules()),
        "docs/store.md": store.document(),
    }
