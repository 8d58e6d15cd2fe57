"""Marks of columns that contain JSON text, in their comments.

A column of text and one of JSON text have the same type in Iceberg, but the text `abc` is `abc` in one and `"abc"` in
the other. The two encodings could not be distinguished in rows, so each column states its encoding in its comment.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from lakehouse.core.table_protocol import JSON_TEXT

_MARKED = re.compile(rf"{JSON_TEXT}(?: in (?P<path>[a-z.]+))?(?:: |$)")


class FieldOfKind(Protocol):
    """A field of a JSON Schema or a Protobuf message. The last of the `fields` of a list or map are its values."""

    @property
    def kind(self) -> str:
        """The kind of the column; `text` and `json` are JSON text."""

    @property
    def fields(self) -> Sequence[FieldOfKind]:
        """The fields of a struct, list or map."""


def path(field: FieldOfKind) -> str | None:
    """Return the place of JSON text in a field's column. Fields of a struct are columns of their own.

    Returns:
        The path below the column, such as `element.value` in a list of maps; empty for the column itself, and None if
        it contains none.
    """
    at: list[str] = []
    while field.kind in ("list", "map"):
        at.append("element" if field.kind == "list" else "value")
        field = field.fields[-1]
    return ".".join(at) if field.kind in ("text", "json") else None


def comment(field: FieldOfKind, description: str | None = None) -> str | None:
    """Return the comment of a field's column: the mark of JSON text if it contains any, then the description."""
    at = path(field)
    if at is None:
        # A user's description that equals the mark must not be treated as the mark.
        return f"Text: {description}" if description and _MARKED.match(description) else description
    mark = f"{JSON_TEXT} in {at}" if at else JSON_TEXT
    return f"{mark}: {description}" if description else mark


def avro_comment(description: str | None) -> str | None:
    """Return the comment of a column of an Avro field, which never contains JSON text in the sense of the mark."""
    return f"Avro: {description}" if description and _MARKED.match(description) else description


def marked(comment: str | None) -> str | None:
    """Return the path that the comment of a column names (see `path`)."""
    match = _MARKED.match(comment or "")
    return (match["path"] or "") if match else None
