"""Responses of Snowflake: their rows by column, and values in them whose form is verified.

A function that parses rows reads them with `text_of`, `value_of`, `single_value` and `json_object`, which raise
`UnknownForm`. `parsed` reports it as an error that names the statement.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from lakehouse.core.errors import LakehouseError

if TYPE_CHECKING:
    from snowflake.connector.cursor import SnowflakeCursor

Row = dict[str, Any]
"""The values of a row, by column."""
R = TypeVar("R")
Parse = Callable[[list[Row]], R]
"""Derives a value from the rows of a response."""


class UnknownForm(ValueError):
    """A response does not have the documented form. The message has names of columns and properties, and no values."""


class UnknownResponse(LakehouseError):
    """A query succeeded with a response of an unknown form."""


def fetched(cursor: SnowflakeCursor) -> list[Row]:
    """Return all rows of an executed statement."""
    columns = [column.name for column in cursor.description]
    return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]


def parsed(where: str, statement: str, rows: list[Row], parse: Parse[R]) -> R:
    """Parse the rows of a query.

    Args:
        where: Address of the server.
        statement: The query.
        rows: Its rows.
        parse: Parses them.

    Raises:
        UnknownResponse: They have an unknown form.
    """
    try:
        return parse(rows)
    except UnknownForm as error:
        problem = str(error)
    raise UnknownResponse(
        f"Snowflake at {where} returned a response that {problem}, to: {statement}. The query changed nothing. Check "
        f"the address and the privileges of the session's role; if both are right, Snowflake has changed the response, "
        f"which needs a newer release of lakehouse"
    )


def value_of(values: Mapping[str, Any], name: str) -> Any:
    """Return a value of a row, of properties or of a JSON object.

    Raises:
        UnknownForm: It does not exist.
    """
    if name not in values:
        raise UnknownForm(f"has no {name}, but {', '.join(values) or 'nothing'}")
    return values[name]


def text_of(values: Mapping[str, Any], name: str) -> str:
    """Return a text of a row, of properties or of a JSON object.

    Raises:
        UnknownForm: It does not exist, or is no text.
    """
    value = value_of(values, name)
    if not isinstance(value, str):
        raise UnknownForm(f"has a {name} of type {type(value).__name__} instead of text")
    return value


def single_value(rows: list[Row], kind: type[R]) -> R:
    """Return the only value of the only row.

    Args:
        rows: The rows.
        kind: Type of the value.

    Raises:
        UnknownForm: There are other values.
    """
    values = [value for row in rows for value in row.values()]
    if len(values) != 1 or not isinstance(values[0], kind):
        shown = ", ".join(type(value).__name__ for value in values) or "nothing"
        raise UnknownForm(f"has {shown} instead of one {kind.__name__}")
    return values[0]


def json_object(text: str) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        UnknownForm: The text is something else.
    """
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise UnknownForm("is no JSON object")
    return document


def properties(rows: list[Row], value: str = "property_value") -> dict[str, Any]:
    """Return the values of a DESC statement, by property.

    Args:
        rows: The rows.
        value: The column of the values.

    Raises:
        UnknownForm: A column is missing.
    """
    return {text_of(row, "property"): value_of(row, value) for row in rows}
