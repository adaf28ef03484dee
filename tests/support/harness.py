"""`advisor.testing`, with its asserts rewritten by pytest to explain a failure in full.

A case file, `tests/cases/<rule>.py`, contains `CASES`; `test_cases.py` makes a test of each case.
"""

import pytest

pytest.register_assert_rewrite("advisor.testing")

from advisor.testing import Case, DoesNotFire, Fires, NotMeasured, given  # noqa: E402 - rewritten when it is imported

__all__ = ["Case", "DoesNotFire", "Fires", "NotMeasured", "given"]
