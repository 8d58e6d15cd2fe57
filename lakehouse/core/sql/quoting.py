"""Quote names and values in the SQL of each engine."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Dialect:
    """Quoting rules of an engine.

    Attributes:
        mark: Encloses an identifier; doubled within it.
        escapes: Replacements of characters within a string literal.
    """

    mark: str
    escapes: dict[str, str]

    def identifier(self, *parts: str) -> str:
        """Quote a name of one or more parts: `("lake", "ns", "t")` → `"lake"."ns"."t"`."""
        return ".".join(f"{self.mark}{part.replace(self.mark, self.mark * 2)}{self.mark}" for part in parts)

    def literal(self, value: str | bool | int | float) -> str:
        """Return a value as a literal."""
        if isinstance(value, bool):
            return str(value).upper()
        if isinstance(value, str):
            return f"'{''.join(self.escapes.get(character, character) for character in value)}'"
        if isinstance(value, float) and not math.isfinite(value):
            # Without quotes it would be the name of a column.
            return f"CAST('{value}' AS DOUBLE)"
        return repr(value)


SPARK = Dialect("`", {"\\": "\\\\", "'": "\\'"})
"""Spark SQL, Identifiers and Literals."""

SNOWFLAKE = Dialect('"', {"\\": "\\\\", "'": "''"})
"""Snowflake, Identifier requirements and String & binary data types."""

DUCKDB = Dialect('"', {"'": "''"})
"""DuckDB, Keywords and identifiers, and Text types: a backslash is literal."""
