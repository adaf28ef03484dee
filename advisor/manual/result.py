"""Generate docs/result.md: every field of result.json."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from advisor.manual import markdown


def document(schema: Mapping[str, Any]) -> str:
    """Return docs/result.md: each field of result.json, as its schema describes it."""
    rows = [(f"`{path}`", _kind(field), field.get("description", "")) for path, field in _fields(schema)]
    return markdown.document(
        "# result.json",
        markdown.generated(of="[its JSON schema](result.schema.json)"),
        schema["description"],
        "`[]` is an element of an array, `*` any name.",
        markdown.table(("Field", "Type", "Meaning"), rows),
    )


def _fields(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    inner = [(f"{path}.{name}" if path else name, field) for name, field in schema.get("properties", {}).items()]
    for name, of in (("[]", schema.get("items")), (".*", schema.get("additionalProperties"))):
        if isinstance(of, dict):
            yield from _fields(of, path + name)
    for name, field in inner:
        yield name, field
        yield from _fields(field, name)
    for choice in schema.get("oneOf", ()):
        yield from _fields(choice, path)


def _kind(field: Mapping[str, Any]) -> str:
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    if "enum" in field:
        return ", ".join(f"`{json.dumps(value)}`" for value in field["enum"])
    kinds = field.get("type") or [choice["type"] for choice in field.get("oneOf", ())]
    return " or ".join([kinds] if isinstance(kinds, str) else kinds)
