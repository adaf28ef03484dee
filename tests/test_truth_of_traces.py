"""The first advice on made traces with one known fault, or none, is the right one."""

import pytest
from benchmarked import imports

from advisor.rules import all_rules

with imports("truth/traces", "truth", ".") as name:
    TABLE = name("labeled").TABLE
    LABELS = name("real").LABELS
    first_advice = name("score").first_advice


@pytest.mark.parametrize("labeled", TABLE, ids=lambda labeled: labeled.name)
def test_first_advice_on_a_synthetic_trace_is_right(labeled, tmp_path):
    first = first_advice(labeled.make().write(tmp_path / "trace.json.gz"))

    assert first in (labeled.right or (None,))


def test_labels_name_existing_rules():
    named = {rule for labeled in TABLE for rule in labeled.right} | {
        rule for right, _ in LABELS.values() for rule in right
    }

    assert named <= {rule.id for rule in all_rules()}
