"""Take attributes of an object for a JSON document."""

from operator import attrgetter
from typing import Any


def picked(thing: object, names: str) -> dict[str, Any]:
    """Return these attributes, in this order; tuples become lists.

    `names` are separated by blanks. In "time_s=seconds", the document's name comes first; "bound=roof.bound" is an
    attribute of an attribute.
    """
    pairs = (name.partition("=") for name in names.split())
    return {name: _listed(attrgetter(attribute or name)(thing)) for name, _, attribute in pairs}


def _listed(value: Any) -> Any:
    return [_listed(item) for item in value] if isinstance(value, tuple) else value
