"""pyiceberg: a statement as a scan, with no engine at all. What a scan cannot do is refused, not approximated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehouse.core.errors import LakehouseError
from lakehouse.query import tables
from lakehouse.query.result import Result

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyparsing import ParserElement

FORM = "SELECT <columns> FROM <namespace>.<table> [WHERE <columns compared with values>] [LIMIT <n>]"


def query(statement: str, systems: Any) -> Result:
    """The rows of a scan.

    Parameters: a statement of the form above; `systems` has the catalog as an attribute.
    Raises: LakehouseError when it is more than a scan, or names what the table does not have; Unreachable.
    """
    from pyparsing import ParseException

    try:
        parsed = _grammar().parse_string(statement, parse_all=True)
    except ParseException as error:
        rest = statement[error.loc :].strip()[:60] or "its end"
        raise _refused(f"it cannot take: {rest}") from error
    except ValueError as error:
        raise _refused(str(error)) from error
    _refuse_single_character_wildcards(statement)
    namespace, name = parsed.table
    table = tables.load(systems.catalog, namespace, name)
    known = {field.name.lower(): field.name for field in table.schema().fields}
    wanted = list(known.values()) if parsed.columns[0] == "*" else [known.get(c.lower(), "") for c in parsed.columns]
    if "" in wanted:
        unknown = parsed.columns[wanted.index("")]
        raise LakehouseError(f"{namespace}.{name} has no column '{unknown}'. It has: {', '.join(known.values())}")
    try:
        rows = table.scan(
            row_filter=as_sql_means(parsed.where[0]) if parsed.where else "true",
            selected_fields=tuple(wanted),
            case_sensitive=False,
            limit=int(parsed.limit[0]) if parsed.limit else None,
        ).to_arrow()
    except (ValueError, TypeError) as error:
        raise _refused(str(error)) from error
    return Result.of_arrow(rows.select(wanted))


def as_sql_means(condition: BooleanExpression) -> BooleanExpression:
    """The condition with `NOT IN` as in SQL, where it is not true of null. In Iceberg it is."""
    from pyiceberg.expressions import And, NotIn, NotNull, Or
    from pyiceberg.expressions.visitors import rewrite_not

    match rewrite_not(condition):
        case And(left=left, right=right):
            return And(as_sql_means(left), as_sql_means(right))
        case Or(left=left, right=right):
            return Or(as_sql_means(left), as_sql_means(right))
        case NotIn(term=term) as found:
            return And(found, NotNull(term))
        case found:
            return found


def _grammar() -> ParserElement:
    """pyiceberg's own grammar of conditions, with what a scan has around it."""
    from pyiceberg.expressions import parser
    from pyparsing import CaselessKeyword, DelimitedList, Group, Literal, Optional, Suppress, Word, nums

    def keyword(word: str) -> ParserElement:
        return Suppress(CaselessKeyword(word))

    columns = Literal("*") | DelimitedList(parser.identifier)
    return (
        keyword("select")
        + Group(columns)("columns")
        + keyword("from")
        + Group(parser.identifier + Suppress(".") + parser.identifier)("table")
        + Optional(keyword("where") + Group(parser.boolean_expression)("where"))
        + Optional(keyword("limit") + Group(Word(nums))("limit"))
        + Optional(Suppress(";"))
    )


def _refuse_single_character_wildcards(statement: str) -> None:
    """pyiceberg's LIKE takes `_` for itself: other rows than in SQL."""
    from pyiceberg.expressions import parser

    for found, _, _ in parser.starts_check.scan_string(statement):
        if "_" in found[0].literal.value:
            raise _refused("LIKE with '_' stands for any character in SQL, and in a scan for itself")


def _refused(why: str) -> LakehouseError:
    return LakehouseError(
        f"pyiceberg reads by a scan, {FORM}: {why}. Nothing was read. Ask with `--engine duckdb`, spark or snowflake"
    )
