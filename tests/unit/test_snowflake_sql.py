"""Every statement the project sends to Snowflake, held against two grammars: sqlfluff's, and the local server's."""

from __future__ import annotations

import inspect

import pytest

from lakehouse.local.snowflake.statements import Alter, Create, parse
from resources import snowflake_sql as sql

STATEMENTS = {
    "create_role": sql.create_role("LAKEHOUSE"),
    "create_warehouse": sql.create_warehouse("LAKEHOUSE"),
    "create_database": sql.create_database("LAKEHOUSE"),
    "create_schema": sql.create_schema("LAKEHOUSE", "TRADES"),
    "create_service_user": sql.create_service_user("LOADER", role="LAKEHOUSE", warehouse="LAKEHOUSE"),
    "set_public_key": sql.set_public_key("LOADER", "MIIBIjANBgkqh+/w0BAQ=="),
    "unset_public_key": sql.unset_public_key("LOADER", sql.KeySlot.SECOND),
    "describe_user": sql.describe_user("LOADER"),
    "grant_role_to_user": sql.grant_role_to_user("LAKEHOUSE", "LOADER"),
    "grant_role_to_role": sql.grant_role_to_role("LAKEHOUSE", "SYSADMIN"),
    **{
        f"grants_{number}": statement
        for number, statement in enumerate(sql.grants("LAKEHOUSE", warehouse="LAKEHOUSE", database="LAKEHOUSE"))
    },
    "create_external_volume": sql.create_external_volume(
        "VOLUME", location="s3://bucket/warehouse", role_arn="arn:aws:iam::123456789012:role/snowflake"
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
    "create_iceberg_table": sql.create_iceberg_table(
        "DB", "S", "T", volume="VOLUME", integration="GLUE", glue_database="db", glue_table="t"
    ),
    "refresh_iceberg_table": sql.refresh_iceberg_table("DB", "S", "T"),
    "iceberg_table_information": sql.iceberg_table_information("DB", "S", "T"),
    "count_rows": sql.count_rows("DB", "S", "T"),
    "drop_iceberg_table": sql.drop_iceberg_table("DB", "S", "T"),
}

SQLFLUFF_DOES_NOT_KNOW = {
    "grants_2": "GRANT CREATE EXTERNAL VOLUME ON ACCOUNT: docs.snowflake.com/sql-reference/sql/grant-privilege,"
    " globalPrivileges",
    "refresh_iceberg_table": "docs.snowflake.com/sql-reference/sql/alter-iceberg-table-refresh",
}

ELSEWHERE = {"iceberg_table_information", "count_rows", "create_rest_catalog_integration"}
"""Queries, and what the local server does not have: it reads Glue only."""

AWKWARD = "a'b\\c\"d"


def violations(statement: str) -> list[object]:
    from sqlfluff.core import FluffConfig, Linter

    return list(Linter(config=FluffConfig(overrides={"dialect": "snowflake"})).parse_string(statement).violations)


def test_every_generator_is_tested():
    functions = inspect.getmembers(sql, inspect.isfunction)
    generators = {name for name, function in functions if function.__module__ == sql.__name__}
    assert generators - {"literal", "grants", "redacted"} == {
        name for name in STATEMENTS if not name.startswith("grants_")
    }


@pytest.mark.parametrize("name", STATEMENTS)
def test_sqlfluff_parses_it_or_the_documentation_says_why_not(name: str):
    # An exception that is none any more fails too: sqlfluff has learnt the statement.
    assert bool(violations(STATEMENTS[name])) == (name in SQLFLUFF_DOES_NOT_KNOW)


@pytest.mark.parametrize(
    "faulty",
    [
        "CREATE EXTERNAL VOLUME V STORAGE_LOCATION = ((NAME = 'V'))",
        "CREATE CATALOG INTEGRATION C CATALOG_SOURCE = GLU TABLE_FORMAT = ICEBERG ENABLED = TRUE",
        "CREATE ICEBERG TABLE T EXTERNAL_VOLUME 'V'",
    ],
)
def test_sqlfluff_would_notice(faulty: str):
    assert violations(faulty)


@pytest.mark.parametrize("name", sorted(STATEMENTS.keys() - ELSEWHERE))
def test_the_local_server_takes_it_with_all_required_options(name: str):
    assert parse(STATEMENTS[name]) is not None


def test_names_and_texts_cannot_break_out():
    volume = parse(sql.create_external_volume(AWKWARD, location="s3://b/", role_arn=AWKWARD))
    assert isinstance(volume, Create)
    assert volume.name == (AWKWARD,)
    assert volume.options["STORAGE_LOCATIONS"][0]["STORAGE_AWS_ROLE_ARN"] == AWKWARD
    user = parse(sql.set_public_key(AWKWARD, AWKWARD))
    assert user == Alter("USER", (AWKWARD,), {"RSA_PUBLIC_KEY": AWKWARD})
    second = parse(sql.unset_public_key(AWKWARD, sql.KeySlot.SECOND))
    assert second == Alter("USER", (AWKWARD,), {"RSA_PUBLIC_KEY_2": None})
    with pytest.raises(ValueError):
        sql.unset_public_key("U", "COMMENT")
    table = parse(
        sql.create_iceberg_table(
            AWKWARD, "S", "T", volume=AWKWARD, integration="C", glue_database=AWKWARD, glue_table=AWKWARD
        )
    )
    assert isinstance(table, Create)
    assert table.name == (AWKWARD, "S", "T")
    assert table.options["CATALOG_NAMESPACE"] == table.options["EXTERNAL_VOLUME"] == AWKWARD
    for statement in (sql.iceberg_table_information(AWKWARD, "S", "T"), sql.count_rows(AWKWARD, "S", "T")):
        assert not violations(statement)


def test_a_rest_catalog_with_another_token_endpoint_and_scopes():
    statement = sql.create_rest_catalog_integration(
        "REST",
        sql.RestSource.ICEBERG_REST,
        uri="https://rest.example",
        catalog=AWKWARD,
        namespace="ns",
        client_id="id",
        client_secret=AWKWARD,
        scopes=["catalog", "all"],
        token_uri="https://login.example/token",
        refresh_seconds=60,
    )
    assert not violations(statement)
    assert "CATALOG_SOURCE = ICEBERG_REST" in statement and "REFRESH_INTERVAL_SECONDS = 60" in statement
    assert "OAUTH_TOKEN_URI = 'https://login.example/token'" in statement
    assert "OAUTH_ALLOWED_SCOPES = ('catalog', 'all')" in statement
    with pytest.raises(ValueError):
        sql.create_rest_catalog_integration(
            "R", "HIVE", uri="u", catalog="c", namespace="n", client_id="i", client_secret="s"
        )


@pytest.mark.parametrize("secret", ["hidden", "it's hidden", AWKWARD, "hidden\\", "'", "hidden' ENABLED = FALSE"])
def test_a_secret_is_not_shown(secret: str):
    statement = sql.create_rest_catalog_integration(
        "R", sql.RestSource.POLARIS, uri="u", catalog="c", namespace="n", client_id="i", client_secret=secret
    )
    shown = sql.redacted(f"syntax error in: {statement}")
    assert sql.literal(secret) in statement and sql.literal(secret) not in shown
    assert "OAUTH_CLIENT_SECRET = '***' OAUTH_ALLOWED_SCOPES" in shown


def test_a_location_ends_in_a_slash():
    """`s3://b/warehouse` must not cover `s3://b/warehouse2`."""
    for location in ("s3://b/warehouse", "s3://b/warehouse/"):
        statement = sql.create_external_volume("V", location=location, role_arn="arn")
        assert "STORAGE_BASE_URL = 's3://b/warehouse/'" in statement
