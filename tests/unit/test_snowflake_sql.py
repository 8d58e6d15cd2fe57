"""Every statement for Snowflake, parsed by two grammars: sqlfluff's and the local server's."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable

import pytest

from lakehouse.deploy.snowflake.objects import CONTENTS
from lakehouse.local.snowflake.statements import Alter, Create, GrantStatement, Parser
from resources.snowflake import sql
from tests.support.clouds.snowflake.strict_statements import ShowGrants, StrictParser

parse = StrictParser().parse

STATEMENTS = {
    "create_role": sql.create_role("LAKEHOUSE"),
    "create_role:comment": sql.create_role("LAKEHOUSE", comment="lakehouse:deployment=production"),
    "create_warehouse": sql.create_warehouse("LAKEHOUSE"),
    "create_warehouse:comment": sql.create_warehouse("LAKEHOUSE", comment="ours"),
    "create_database": sql.create_database("LAKEHOUSE"),
    "create_database:comment": sql.create_database("LAKEHOUSE", comment="ours"),
    "create_linked_database": sql.create_linked_database("LAKE", integration="POLARIS", namespace="trading"),
    "link_status": sql.link_status("LAKE"),
    "create_schema": sql.create_schema("LAKEHOUSE", "TRADES"),
    "create_schema:comment": sql.create_schema("LAKEHOUSE", "TRADES", comment="ours"),
    "create_service_user": sql.create_service_user("LOADER", role="LAKEHOUSE", warehouse="LAKEHOUSE"),
    "create_service_user:comment": sql.create_service_user(
        "LOADER", role="LAKEHOUSE", warehouse="LAKEHOUSE", namespace="DB.S", comment="ours"
    ),
    "set_public_key": sql.set_public_key("LOADER", "MIIBIjANBgkqh+/w0BAQ=="),
    "unset_public_key": sql.unset_public_key("LOADER", sql.KeySlot.SECOND),
    "describe_user": sql.describe_user("LOADER"),
    "grant_role_to_user": sql.grant_role_to_user("LAKEHOUSE", "LOADER"),
    "grant_role_to_role": sql.grant_role_to_role("LAKEHOUSE", "SYSADMIN"),
    "grant": sql.grant("USAGE", "INTEGRATION", ("GLUE",), "LAKEHOUSE"),
    "grant:tables": sql.grant("CREATE ICEBERG TABLE", "SCHEMA", ("DB", "S"), "LAKEHOUSE"),
    "grant_on_tables": sql.grant_on_tables("ALL", "DB", "S", "LAKEHOUSE"),
    "grant_on_tables:future": sql.grant_on_tables("FUTURE", "DB", "S", "LAKEHOUSE"),
    "grant_ownership_of_user": sql.grant_ownership_of_user("LOADER", "LAKEHOUSE"),
    "show_grants_to_role": sql.show_grants_to_role("LAKEHOUSE"),
    "show_future_grants_to_role": sql.show_future_grants_to_role("LAKEHOUSE"),
    "show_grants_of_role": sql.show_grants_of_role("LAKEHOUSE"),
    **{
        f"grants:{number}": statement
        for number, statement in enumerate(sql.grants("LAKEHOUSE", warehouse="LAKEHOUSE", database="LAKEHOUSE"))
    },
    "create_external_volume": sql.create_external_volume(
        "VOLUME", location="s3://bucket/warehouse", role_arn="arn:aws:iam::123456789012:role/snowflake"
    ),
    "create_external_volume:comment": sql.create_external_volume(
        "VOLUME", location="s3://bucket/", role_arn="arn:aws:iam::123456789012:role/r", external_id="id", comment="ours"
    ),
    "create_catalog_integration": sql.create_catalog_integration(
        "GLUE", role_arn="arn:aws:iam::123456789012:role/snowflake", catalog_id="123456789012", region="eu-west-1"
    ),
    "create_rest_catalog_integration": sql.create_rest_catalog_integration(
        "POLARIS",
        sql.RestSource.POLARIS,
        uri="https://polaris.example/api/catalog",
        catalog="lake",
        namespace="trading",
        client_id="id",
        client_secret="hidden",
    ),
    "create_rest_catalog_integration:other": sql.create_rest_catalog_integration(
        "REST",
        sql.RestSource.ICEBERG_REST,
        uri="https://rest.example",
        catalog="lake",
        namespace="trading",
        client_id="id",
        client_secret="hidden",
        scopes=["catalog", "all"],
        token_uri="https://login.example/token",
        comment="ours",
    ),
    "create_glue_rest_integration": sql.create_glue_rest_integration(
        "GLUE",
        role_arn="arn:aws:iam::123456789012:role/snowflake",
        external_id="lakehouse-production-123456789012-catalog",
        catalog_id="123456789012",
        region="eu-west-1",
        namespace="trading",
        comment="ours",
    ),
    "set_refresh_interval": sql.set_refresh_interval("GLUE"),
    "set_client_secret": sql.set_client_secret("POLARIS", "hidden"),
    "verify_external_volume": sql.verify_external_volume("VOLUME"),
    "verify_catalog_integration": sql.verify_catalog_integration("GLUE"),
    "create_iceberg_table": sql.create_iceberg_table(
        "DB", "S", "T", volume="VOLUME", integration="GLUE", namespace="db", catalog_table="t"
    ),
    "create_iceberg_table:comment": sql.create_iceberg_table(
        "DB",
        "S",
        "T",
        volume="VOLUME",
        integration="GLUE",
        namespace="db",
        catalog_table="t",
        auto_refresh=True,
        comment="ours",
    ),
    "disable_auto_refresh": sql.disable_auto_refresh("DB", "S", "T"),
    "refresh_iceberg_table": sql.refresh_iceberg_table("DB", "S", "T"),
    "iceberg_table_information": sql.iceberg_table_information("DB", "S", "T"),
    "count_rows": sql.count_rows("DB", "S", "T"),
    **{
        f"{statement.__name__}:{kind}": statement(kind, *name)
        for kind, *name in (
            ("ROLE", "LAKEHOUSE"),
            ("USER", "LOADER"),
            ("WAREHOUSE", "LAKEHOUSE"),
            ("DATABASE", "DB"),
            ("SCHEMA", "DB", "S"),
            ("EXTERNAL VOLUME", "VOLUME"),
            ("CATALOG INTEGRATION", "GLUE"),
        )
        for statement in (sql.show, sql.drop)
    },
    "drop:ICEBERG TABLE": sql.drop("ICEBERG TABLE", "DB", "S", "T"),
    "show_iceberg_tables": sql.show_iceberg_tables("DB"),
    **{f"show_in_database:{kind}": sql.show_in_database(kind, "DB") for kind in (*CONTENTS, "SCHEMAS")},
    "describe:EXTERNAL VOLUME": sql.describe("EXTERNAL VOLUME", "VOLUME"),
    "describe:CATALOG INTEGRATION": sql.describe("CATALOG INTEGRATION", "GLUE"),
    "use_role": sql.use_role("LAKEHOUSE"),
    "use_warehouse": sql.use_warehouse("LAKEHOUSE"),
}
"""Statements by the function that generates them, with a suffix for a variant."""

UNKNOWN_TO_SQLFLUFF = {
    "grants:2": "GRANT CREATE EXTERNAL VOLUME ON ACCOUNT: docs.snowflake.com/sql-reference/sql/grant-privilege,"
    " globalPrivileges",
    "grant:tables": "GRANT CREATE ICEBERG TABLE ON SCHEMA: docs.snowflake.com/sql-reference/sql/grant-privilege,"
    " schemaPrivileges",
    "show:CATALOG INTEGRATION": "docs.snowflake.com/sql-reference/sql/show-catalog-integrations",
    "describe:CATALOG INTEGRATION": "docs.snowflake.com/sql-reference/sql/desc-catalog-integration",
    "drop:CATALOG INTEGRATION": "docs.snowflake.com/sql-reference/sql/drop-catalog-integration",
    "create_linked_database": "docs.snowflake.com/sql-reference/sql/create-database-catalog-linked",
    "set_refresh_interval": "docs.snowflake.com/sql-reference/sql/alter-catalog-integration",
    "set_client_secret": "docs.snowflake.com/sql-reference/sql/alter-catalog-integration",
    "disable_auto_refresh": "docs.snowflake.com/user-guide/tables-iceberg-auto-refresh",
    "refresh_iceberg_table": "docs.snowflake.com/sql-reference/sql/alter-iceberg-table-refresh",
    "show_in_database:ALERTS": "docs.snowflake.com/sql-reference/sql/show-alerts",
    "show_in_database:USER PROCEDURES": "docs.snowflake.com/sql-reference/sql/show-user-procedures",
}

SPECIAL = "a'b\\c\"d"


def violations(statement: str) -> list[object]:
    from sqlfluff.core import FluffConfig, Linter

    return list(Linter(config=FluffConfig(overrides={"dialect": "snowflake"})).parse_string(statement).violations)


def test_statements_cover_all_generators():
    functions = inspect.getmembers(sql, inspect.isfunction)
    generators = {name for name, function in functions if function.__module__ == sql.__name__}
    assert generators - {"literal", "comment_clause", "redact"} == {name.partition(":")[0] for name in STATEMENTS}


@pytest.mark.parametrize("name", STATEMENTS)
def test_statement_parses_in_sqlfluff_unless_exempt(name: str):
    # An outdated exception fails too, once sqlfluff knows the statement.
    assert bool(violations(STATEMENTS[name])) == (name in UNKNOWN_TO_SQLFLUFF)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE EXTERNAL VOLUME V STORAGE_LOCATION = ((NAME = 'V'))",
        "CREATE CATALOG INTEGRATION C CATALOG_SOURCE = GLU TABLE_FORMAT = ICEBERG ENABLED = TRUE",
        "CREATE ICEBERG TABLE T EXTERNAL_VOLUME 'V'",
    ],
)
def test_sqlfluff_reports_invalid_statement(statement: str):
    assert violations(statement)


QUERIES = {name for name, statement in STATEMENTS.items() if statement.startswith("SELECT")}
QUERIES.add("show_in_database:OBJECTS")


@pytest.mark.parametrize("name", sorted(STATEMENTS.keys() - QUERIES))
def test_statement_parses_in_local_server(name: str):
    strict, lenient = parse(STATEMENTS[name]), Parser().parse(STATEMENTS[name])
    assert strict is not None
    if not isinstance(strict, GrantStatement):
        assert lenient == strict
    elif not isinstance(strict, ShowGrants):
        assert lenient == GrantStatement()


def test_statement_special_characters_stay_quoted():
    volume = parse(sql.create_external_volume(SPECIAL, location="s3://b/", role_arn=SPECIAL))
    assert isinstance(volume, Create)
    assert volume.name == (SPECIAL,)
    assert volume.options["STORAGE_LOCATIONS"][0]["STORAGE_AWS_ROLE_ARN"] == SPECIAL
    user = parse(sql.set_public_key(SPECIAL, SPECIAL))
    assert user == Alter("USER", (SPECIAL,), {"RSA_PUBLIC_KEY": SPECIAL})
    second = parse(sql.unset_public_key(SPECIAL, sql.KeySlot.SECOND))
    assert second == Alter("USER", (SPECIAL,), {"RSA_PUBLIC_KEY_2": None})
    with pytest.raises(ValueError):
        sql.unset_public_key("U", "COMMENT")
    table = parse(
        sql.create_iceberg_table(
            SPECIAL, "S", "T", volume=SPECIAL, integration="C", namespace=SPECIAL, catalog_table=SPECIAL
        )
    )
    assert isinstance(table, Create)
    assert table.name == (SPECIAL, "S", "T")
    assert table.options["CATALOG_NAMESPACE"] == table.options["EXTERNAL_VOLUME"] == SPECIAL
    for statement in (sql.iceberg_table_information(SPECIAL, "S", "T"), sql.count_rows(SPECIAL, "S", "T")):
        assert not violations(statement)


def test_rest_catalog_integration_has_endpoint_and_scopes():
    statement = sql.create_rest_catalog_integration(
        "REST",
        sql.RestSource.ICEBERG_REST,
        uri="https://rest.example",
        catalog=SPECIAL,
        namespace="ns",
        client_id="id",
        client_secret=SPECIAL,
        scopes=["catalog", "all"],
        token_uri="https://login.example/token",
    )
    assert not violations(statement)
    assert "CATALOG_SOURCE = ICEBERG_REST" in statement and "REFRESH_INTERVAL_SECONDS = 30" in statement
    assert "OAUTH_TOKEN_URI = 'https://login.example/token'" in statement
    assert "OAUTH_ALLOWED_SCOPES = ('catalog', 'all')" in statement
    with pytest.raises(ValueError):
        sql.create_rest_catalog_integration(
            "R", "HIVE", uri="u", catalog="c", namespace="n", client_id="i", client_secret="s"
        )


@pytest.mark.parametrize("secret", ["hidden", "it's hidden", SPECIAL, "hidden\\", "'", "hidden' ENABLED = FALSE"])
def test_redacted_statement_hides_secret(secret: str):
    statement = sql.create_rest_catalog_integration(
        "R", sql.RestSource.POLARIS, uri="u", catalog="c", namespace="n", client_id="i", client_secret=secret
    )
    redacted = sql.redact(f"syntax error in: {statement}")
    assert sql.literal(secret) in statement and sql.literal(secret) not in redacted
    assert "OAUTH_CLIENT_SECRET = '***' OAUTH_ALLOWED_SCOPES" in redacted


@pytest.mark.parametrize("quote", [repr, json.dumps, lambda statement: repr({"message": f"refused: {statement}"})])
def test_redacted_quoted_statement_hides_secret(quote: Callable[[str], str]):
    statement = sql.set_client_secret("R", "hidden")
    assert "hidden" in quote(statement) and "hidden" not in sql.redact(quote(statement))


def test_external_volume_location_ends_in_slash():
    """`s3://b/warehouse` must not cover `s3://b/warehouse2`."""
    for location in ("s3://b/warehouse", "s3://b/warehouse/"):
        statement = sql.create_external_volume("V", location=location, role_arn="arn")
        assert "STORAGE_BASE_URL = 's3://b/warehouse/'" in statement
