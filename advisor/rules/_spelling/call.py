"""Write a function call with some of its arguments changed."""

import json

from advisor.rules.base import Change, CodeDifference, python
from profiler.schema import CallFact

NOT_SET = "not set"


def configured(call: CallFact | None, name: str, settings: dict[str, object], known: dict[str, object]) -> Change:
    """Return the change to the call that configures a framework.

    For the old value of a setting, the program's source takes precedence over the measured value.
    """
    written = {key: value(each) for key, each in settings.items()}
    before = {key: value(each) for key, each in known.items() if each is not None}
    if call is not None:
        before = dict.fromkeys(written, NOT_SET) | before | call.settings
        name = call.name if call.name.isidentifier() else name
    if len(written) == 1:
        code = "".join(f"{name}(..., {key}={each})  # its other arguments as before\n" for key, each in written.items())
    else:
        lines = "".join(f"    {key}={each},\n" for key, each in written.items())
        code = f"{name}(\n    ...,  # its other arguments as before\n{lines})\n"
    changed = [key for key in written if before.get(key, written[key]) != written[key]]
    return python(
        code, call.place if call else None, [CodeDifference(key, before[key], written[key]) for key in changed]
    )


def value(this: object) -> str:
    """Return the value as Python source, with strings in double quotes."""
    return json.dumps(this) if isinstance(this, str) else repr(this)
