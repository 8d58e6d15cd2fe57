"""Refusal of statements that are not queries, before any engine receives them."""

from types import SimpleNamespace

import pytest

from lakehouse.core.errors import LakehouseError
from lakehouse.query.engines import ENGINES, run

WRITES = (
    "DROP TABLE ns.t",
    "INSERT INTO ns.t SELECT 1",
    "UPDATE ns.t SET a = 1",
    "DELETE FROM ns.t",
    "MERGE INTO ns.t USING ns.u ON t.a = u.a WHEN MATCHED THEN DELETE",
    "TRUNCATE TABLE ns.t",
    "ALTER TABLE ns.t ADD COLUMN b INT",
    "CREATE TABLE ns.u AS SELECT * FROM ns.t",
    "GRANT SELECT ON ns.t TO ROLE r",
    "CALL system.expire_snapshots('ns.t')",
    "SET a = 1",
    "EXPLAIN ANALYZE INSERT INTO ns.t SELECT 1",
    "WITH a AS (SELECT 1 AS x) INSERT INTO ns.t SELECT * FROM a",
    "WITH a AS (DELETE FROM ns.t) SELECT 1",
    "/* SELECT */ DROP TABLE ns.t",
    "(DROP TABLE ns.t)",
)
WRITES_BY_ENGINE = {
    "snowflake": (
        "COPY INTO @stage FROM ns.t",
        "EXECUTE IMMEDIATE 'DROP TABLE ns.t'",
        "BEGIN DROP TABLE ns.t; END",
        "WITH p AS PROCEDURE () RETURNS INT LANGUAGE SQL AS 'BEGIN DROP TABLE ns.t; END' CALL p()",
        "SHOW TABLES ->> DROP TABLE ns.t",
        "SHOW UNKNOWN ->> DROP TABLE ns.t",
        "SELECT 1 ->> DROP TABLE ns.t",
        "SELECT SYSTEM$ABORT_SESSION(1)",
        "SELECT db.s.system$abort_session(1)",
        'SELECT "SYSTEM$ABORT_SESSION"(1)',
        "SELECT IDENTIFIER('SYSTEM$ABORT_SESSION')(1)",
        "SELECT 1 // SELECT\n; DROP TABLE ns.t",
        "SELECT 'a\\\\'; DROP TABLE ns.t",
    ),
    "athena": (
        "UNLOAD (SELECT * FROM ns.t) TO 's3://bucket/a/' WITH (format = 'PARQUET')",
        "MSCK REPAIR TABLE ns.t",
        "VACUUM ns.t",
        "OPTIMIZE ns.t REWRITE DATA USING BIN_PACK",
        "EXECUTE prepared",
    ),
    "duckdb": ("COPY ns.t TO 'a.csv'", "ATTACH 'a.db'", "PRAGMA database_list"),
    "spark": (
        "FROM ns.t INSERT INTO ns.u SELECT *",
        "INSERT OVERWRITE DIRECTORY '/tmp/a' SELECT 1",
        "CACHE TABLE ns.t",
        "ADD JAR 'a.jar'",
        "SELECT reflect('java.lang.System', 'exit', 0)",
        "SELECT `java_method`('java.lang.System', 'exit', 0)",
        "SELECT try_reflect('java.lang.System', 'exit', 0)",
        "SELECT TRANSFORM(a) USING 'rm -r /' AS (b) FROM ns.t",
        "EXECUTE IMMEDIATE 'DROP TABLE ns.t'",
    ),
}
QUERIES = (
    "SELECT * FROM ns.t",
    "select 'DROP TABLE ns.t; INSERT' AS \"drop\" from ns.t -- DELETE;",
    "WITH a AS (SELECT 1 AS x) SELECT * FROM a UNION ALL SELECT 2;",
    "(SELECT 1) ORDER BY 1",
    "VALUES (1)",
    "SELECT replace(name, 'a', 'b') FROM ns.t; -- the end",
)


class Sent(Exception):
    """The statement was sent to the engine."""


class Resources(SimpleNamespace):
    """Resources of which any use is a sent statement."""

    def __getattribute__(self, name):
        raise Sent


@pytest.mark.parametrize(
    ("engine", "statement"),
    [(engine, statement) for engine in ENGINES for statement in (*WRITES, *WRITES_BY_ENGINE[engine])],
)
def test_query_of_write_is_refused_before_it_is_sent(engine, statement, capfd):
    with pytest.raises(LakehouseError, match="[Nn]othing was run"):
        run(statement, engine, Resources())
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("statement", ["SELECT 1; SELECT 2", "SELECT 1; DROP TABLE ns.t", ";", "", "-- SELECT 1"])
def test_query_of_not_exactly_one_statement_is_refused(engine, statement):
    with pytest.raises(LakehouseError, match="[Nn]othing was run"):
        run(statement, engine, Resources())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("statement", ["SELECT 'open", "SELECT (1", "SELECT " + "(" * 5000 + "1" + ")" * 5000])
def test_query_that_cannot_be_parsed_is_refused(engine, statement):
    with pytest.raises(LakehouseError, match="[Nn]othing was run") as raised:
        run(statement, engine, Resources())
    assert "\x1b" not in str(raised.value)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("statement", QUERIES)
def test_query_that_only_reads_is_sent(engine, statement):
    with pytest.raises(Sent):
        run(statement, engine, Resources())


@pytest.mark.parametrize("engine", ("snowflake", "athena", "spark"))
@pytest.mark.parametrize("statement", ("SHOW TABLES IN ns", "DESCRIBE ns.t"))
def test_show_and_describe_are_sent(engine, statement, capfd):
    with pytest.raises(Sent):
        run(statement, engine, Resources())
    assert capfd.readouterr() == ("", "")
