"""`advisor.testing`, with its asserts explained in full by pytest.

A case file, `tests/cases/<rule>.py`, holds `CASES`; `test_cases.py` makes a test of each.
"""

import pytest

pytest.register_assert_rewrite("advisor.testing")

from advisor.testing import Case, DoesNotFire, Fires, NotMeasured, given  # noqa: E402 - rewritten when it is imported

__all__ = ["Case", "DoesNotFire", "Fires", "NotMeasured", "given"]
