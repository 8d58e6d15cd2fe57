"""Detect escapes in JSON that UTF-8 cannot represent."""

from pyspark.sql import Column
from pyspark.sql import functions as F

_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_SURROGATE = r"\\u[dD][89a-fA-F]"
"""Escapes of a surrogate pair, and the beginning of any surrogate."""


def has_lone_surrogate(text: Column) -> Column:
    """Return whether a surrogate is escaped without its other half (RFC 8259, 8.2)."""
    # An escaped backslash does not begin an escape.
    rest = F.regexp_replace(F.replace(text, F.lit(r"\\"), F.lit("  ")), _PAIR, "")
    return (F.contains(text, F.lit(r"\ud")) | F.contains(text, F.lit(r"\uD"))) & rest.rlike(_SURROGATE)
