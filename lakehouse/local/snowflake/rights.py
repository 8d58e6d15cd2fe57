"""Access control for tables and views, checked before fakesnow runs a statement.

Privileges exist for schemas and Iceberg tables. Every role that may use a schema may use its other tables and views.
"""

from sqlglot import Expr, exp

from lakehouse.local.snowflake import snowflake_errors
from lakehouse.local.snowflake.parsing.tokens import Name
from lakehouse.local.snowflake.session import Session

# sqlglot turns what it cannot parse into a Command, which DuckDB would run if it is one of DuckDB's statements.
_DUCKDB_STATEMENTS = (exp.Command, exp.Pragma, exp.Attach, exp.Detach)
_WRITES = (exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.TruncateTable, exp.Alter, exp.Drop)


def check(session: Session, expression: Expr) -> list[Name]:
    """Check that the session's role may run a statement.

    Returns:
        The Iceberg tables that the statement reads.

    Raises:
        ProgrammingError: The statement is unknown, needs a privilege that the role lacks, would change an Iceberg table
            of an external catalog, or reads one without a warehouse.
    """
    if isinstance(expression, _DUCKDB_STATEMENTS):
        raise snowflake_errors.not_emulated(f"The statement '{expression.sql(dialect='snowflake')[:80]}'")
    if isinstance(expression, exp.Use):
        return []
    local = {cte.alias.upper() for cte in expression.find_all(exp.CTE)}
    with session.account.lock:
        read = [
            _check_table(session, expression, table)
            for table in expression.find_all(exp.Table)
            if isinstance(table.this, exp.Identifier) and not (len(table.parts) == 1 and table.name.upper() in local)
        ]
    return [name for name in read if name]


def _check_table(session: Session, expression: Expr, table: exp.Table) -> Name | None:
    """Check one table of a statement, and return its full name if it is an Iceberg table."""
    account, role = session.account, session.role
    parts: Name = tuple(part.name if part.args.get("quoted") else part.name.upper() for part in table.parts)
    if len(parts) > 3 or (len(parts) < 3 and not session.database) or (len(parts) == 1 and not session.schema):
        return None  # fakesnow reports the missing part
    name = session.resolve(parts, 3)
    for kind, container in (("DATABASE", name[:1]), ("SCHEMA", name[:2])):
        if account.find(kind, container):
            account.require("USAGE", kind, container, role)
    target = expression.this.this if isinstance(expression.this, exp.Schema) else expression.this
    if isinstance(expression, exp.Create) and target is table:
        privilege = f"CREATE {expression.kind}"
        if expression.kind in ("TABLE", "VIEW") and account.find("SCHEMA", name[:2]):
            account.require(privilege, "SCHEMA", name[:2], role)
    if account.find("ICEBERG TABLE", name) is None:
        return None
    if isinstance(expression, (*_WRITES, exp.Create)) and expression.find(exp.Table) is table:
        raise snowflake_errors.failed(f"Iceberg table {name[2]} is read-only: it belongs to an external catalog")
    account.require("SELECT", "ICEBERG TABLE", name, role)
    if not session.warehouse or not account.allowed("USAGE", "WAREHOUSE", (session.warehouse,), role):
        raise snowflake_errors.no_warehouse()
    return name
