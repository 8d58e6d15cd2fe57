"""The Snowflake resource before it connects: imports, and errors of the private key."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehouse.core.errors import LakehouseError
from resources.snowflake.snowflake import Snowflake


def snowflake(key_path: Path) -> Snowflake:
    return Snowflake(
        account="LOCAL",
        user="LOADER",
        private_key_path=str(key_path),
        role="R",
        warehouse="W",
        database="DB",
        aws_role_arn="arn:aws:iam::123456789012:role/snowflake",
        glue_catalog_id="123456789012",
        region="eu-west-1",
        host="127.0.0.1",
        port=1,
        protocol="http",
    )


def test_query_missing_key_names_setting(tmp_path: Path):
    with pytest.raises(
        LakehouseError, match=r"LOADER is not at .*/none\.p8\. Nothing was changed\. Correct private_key"
    ):
        snowflake(tmp_path / "none.p8").query("select 1")


def test_query_invalid_key_file_is_refused(tmp_path: Path):
    path = tmp_path / "key.p8"
    path.write_text("not a key")
    with pytest.raises(LakehouseError, match=r"key\.p8 is not a readable PEM private key"):
        snowflake(path).query("select 1")
