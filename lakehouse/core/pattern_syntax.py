"""Validation of regular expressions by RE2, the engine that matches them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.core.patterns import Matches, has_nested_class


def pattern_problem(test: Matches) -> str:
    """Return why RE2 cannot match a pattern as Java's engine did; empty if it can."""
    if has_nested_class(test.pattern):
        return "a class within a class has no meaning in RE2, which reads its characters"
    for pattern in (test.pattern, test.whole):
        try:
            pc.match_substring_regex(pa.array([""]), pattern)
        except pa.ArrowInvalid as error:
            return str(error).removeprefix("Invalid regular expression: ")
    return ""
