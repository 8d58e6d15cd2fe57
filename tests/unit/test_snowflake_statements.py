"""The grammar of the local Snowflake server: emulated statements, others left to fakesnow, and errors."""

from __future__ import annotations

import pytest
from snowflake.connector.errors import ProgrammingError

from lakehouse.local.snowflake.statements import Alter, Create, Describe, Drop, Refresh, Show, Use
from tests.support.clouds.snowflake.strict_statements import (
    GrantOnTables,
    GrantOwnership,
    GrantPrivileges,
    GrantRole,
    ShowGrants,
    StrictParser,
)


@pytest.mark.parametrize(
    ("statement", "parsed"),
    [
        ("create role if not exists loader;", Create("ROLE", ("LOADER",), if_not_exists=True)),
        ('create or replace role "Loader"', Create("ROLE", ("Loader",), or_replace=True)),
        ("CREATE SCHEMA db.s comment = 'it''s'", Create("SCHEMA", ("DB", "S"), {"COMMENT": "it's"})),
        (
            "create user u type = service default_role = 'loader' disabled = false",
            Create("USER", ("U",), {"TYPE": "SERVICE", "DEFAULT_ROLE": "LOADER", "DISABLED": False}),
        ),
        (
            "create warehouse w warehouse_size = 'XSMALL' auto_suspend = 60",
            Create("WAREHOUSE", ("W",), {"WAREHOUSE_SIZE": "XSMALL", "AUTO_SUSPEND": 60}),
        ),
        (
            "alter user u unset rsa_public_key, comment",
            Alter("USER", ("U",), {"RSA_PUBLIC_KEY": None, "COMMENT": None}),
        ),
        ("alter iceberg table if exists d.s.t refresh -- now", Refresh(("D", "S", "T"), if_exists=True)),
        ("drop catalog integration if exists c", Drop("CATALOG INTEGRATION", ("C",), if_exists=True)),
        ("desc external volume v", Describe("EXTERNAL VOLUME", ("V",))),
        ("describe user u", Describe("USER", ("U",))),
        ("show iceberg tables like 'A%' in schema d.s", Show("ICEBERG TABLE", "A%", ("D", "S"))),
        ("show roles in account", Show("ROLE")),
        (
            "grant usage, create schema on database d to role r",
            GrantPrivileges(("USAGE", "CREATE SCHEMA"), "DATABASE", ("D",), "R"),
        ),
        (
            "revoke select on table t from role r",
            GrantPrivileges(("SELECT",), "ICEBERG TABLE", ("T",), "R", revoke=True),
        ),
        (
            "grant create external volume on account to role r",
            GrantPrivileges(("CREATE EXTERNAL VOLUME",), "ACCOUNT", (), "R"),
        ),
        ("grant role r to user u", GrantRole("R", "USER", "U")),
        ("revoke role r from role s", GrantRole("R", "ROLE", "S", revoke=True)),
        (
            "grant select on future iceberg tables in schema d.s to role r",
            GrantOnTables(future=True, schema=("D", "S"), role="R"),
        ),
        ("grant ownership on user u to role r copy current grants", GrantOwnership("USER", ("U",), "R")),
        ("show future grants to role r", ShowGrants("FUTURE GRANTS TO", "R")),
        ("show schemas like 's' in database d", Show("SCHEMA", "s", ("D",))),
        ("alter iceberg table t set auto_refresh = false", Alter("ICEBERG TABLE", ("T",), {"AUTO_REFRESH": False})),
        ("use role r", Use("ROLE", "R")),
    ],
)
def test_parse_emulated_statement(statement: str, parsed: object):
    assert StrictParser().parse(statement) == parsed


@pytest.mark.parametrize(
    "statement",
    [
        "select 1",
        "create table t (id int)",
        "drop table t",
        "use schema s",
        "show tables",
        "describe table t",
        "",
        "'open",
    ],
)
def test_parse_other_statement_is_left_to_fakesnow(statement: str):
    assert StrictParser().parse(statement) is None


REST = "create catalog integration c catalog_source = iceberg_rest table_format = iceberg enabled = true {}"
VOLUME = "create external volume v storage_locations = ((name = 'v' storage_provider = 's3' {}))"


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("create role", "unexpected '<EOF>'"),
        ("create role 'r'", "unexpected 'r'"),
        ("create role r extra", "invalid property 'EXTRA'"),
        ("drop role r cascade", "unexpected 'cascade'"),
        ("create user u password = 'x'", "invalid property 'PASSWORD'"),
        ("create user u rsa_public_key = key", r"unexpected 'key' \(expected string\)"),
        ("create user u disabled = 1", r"expected TRUE or FALSE"),
        ("create user u comment = 'a' comment = 'b'", "duplicate property 'COMMENT'"),
        (VOLUME.format("storage_base_url = 's3://b/'"), r"Missing option\(s\): \['STORAGE_AWS_ROLE_ARN'\]"),
        (VOLUME.format("storage_base_url = 'b' storage_aws_role_arn = 'a'"), "invalid STORAGE_BASE_URL 'b'"),
        (VOLUME.format(", storage_base_url = 's3://b/'"), "unexpected ','"),
        ("create catalog integration c catalog_source = hive", "HIVE .* is not emulated"),
        ("create catalog integration c catalog_source = glue glue_region = 'r'", "Missing option.*GLUE_AWS_ROLE_ARN"),
        (REST.format("glue_region = 'r'"), "invalid property 'GLUE_REGION' for CATALOG_SOURCE ICEBERG_REST"),
        (REST.format("rest_config = (catalog_uri = 'u' catalog_api_type = aws_glue)"), r"\['CATALOG_NAME'\]"),
        (REST.format("rest_authentication = (type = bearer)"), "BEARER .* is not emulated"),
        (
            REST.format("rest_authentication = (type = oauth)"),
            r"\['OAUTH_CLIENT_ID', 'OAUTH_CLIENT_SECRET', 'OAUTH_ALLO",
        ),
        (REST.format("rest_authentication = (type = oauth sigv4_iam_role = 'r')"), "'SIGV4_IAM_ROLE' for TYPE OAUTH"),
        ("grant select on all tables in schema s to role r", "expected ICEBERG TABLES IN SCHEMA"),
        ("create iceberg table t external_volume = 'v' catalog = 'c'", r"\['CATALOG_TABLE_NAME'\]"),
        ("create iceberg table t (id int)", "not emulated"),
        ("alter iceberg table t refresh 'm.json'", "unexpected 'm.json'"),
        ("grant select on warehouse w to role r", "a privilege on WAREHOUSE, not SELECT"),
        ("grant usage on warehouse w to r", "expected TO ROLE"),
    ],
)
def test_parse_invalid_statement_is_refused(statement: str, message: str):
    with pytest.raises(ProgrammingError, match=message):
        StrictParser().parse(statement)
