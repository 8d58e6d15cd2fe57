"""Which columns hold JSON text, as their comments record it.

A column of text and one of JSON text have the same type in Iceberg, but the text `abc` is `abc` in one and `"abc"` in
the other. Rows with either encoding could not be distinguished, so that each column records which of them it uses.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakehouse.formats.json_schema import Field as JsonField
    from lakehouse.formats.protobuf import Field as ProtobufField

MARK = "JSON text"
_MARKED = re.compile(rf"{MARK}(?: in (?P<path>[a-z.]+))?(?:: |$)")


def path(field: JsonField | ProtobufField) -> str | None:
    """Return where a field's column holds JSON text.

    Returns:
        The path below the column, such as `element.value` in a list of maps; empty for the column itself, and None
        where it holds none. What a struct holds is a matter of its own columns.
    """
    at: list[str] = []
    inner: Any = field
    while inner.kind in ("list", "map"):
        at.append("element" if inner.kind == "list" else "value")
        inner = inner.fields[-1]
    return ".".join(at) if inner.kind in ("text", "json") else None


def comment(field: JsonField | ProtobufField, description: str | None = None) -> str | None:
    """Return the comment of a field's column: the mark of JSON text, if it holds any, then the schema's description."""
    at = path(field)
    if at is None:
        # The description of another column must not pass for the mark.
        return f"Text: {description}" if description and _MARKED.match(description) else description
    mark = f"{MARK} in {at}" if at else MARK
    return f"{mark}: {description}" if description else mark


def marked(comment: str | None) -> str | None:
    """Return the path that the comment of a column names (see `path`)."""
    found = _MARKED.match(comment or "")
    return (found["path"] or "") if found else None
