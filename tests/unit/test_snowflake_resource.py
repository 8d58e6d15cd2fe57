"""The Snowflake resource without a server: errors of the private key, and states read while a table is refreshed."""

from __future__ import annotations

import json
from contextlib import contextmanager
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.schema import Schema

from lakehouse.config.model import Topic
from lakehouse.core.errors import LakehouseError
from lakehouse.core.tables.naming import TableRef
from lakehouse.readers.snowflake_reader import SnowflakeReader
from resources.snowflake.snowflake import Snowflake, TableState


class Refreshed(Snowflake):
    """An account with one table. An item of `answers` is its metadata file, with as many rows as the number in it."""

    _answers: Any = None

    @contextmanager
    def connect(self):
        yield None

    def _run(self, connection, statement, params=()):
        number = next(self._answers)
        is_count = "COUNT(*)" in statement
        return [""], [(number if is_count else json.dumps({"metadataLocation": f"{number}.metadata.json"}),)]


class CaseSensitive(Refreshed):
    """An account that has its table in the database "lake" only, a name that was quoted when it was created."""

    def _run(self, connection, statement, params=()):
        assert '"lake"."S"."T"' in statement, statement
        return super()._run(connection, statement, params)


def snowflake(key_path: Path, kind: type[Snowflake] = Snowflake, database: str = "DB") -> Any:
    return kind(
        account="LOCAL",
        user="LOADER",
        private_key_path=str(key_path),
        role="R",
        warehouse="W",
        database=database,
        aws_role_arn="arn:aws:iam::123456789012:role/snowflake",
        glue_catalog_id="123456789012",
        region="eu-west-1",
        host="127.0.0.1",
        port=1,
        protocol="http",
    )


def test_query_missing_key_names_setting(tmp_path: Path):
    with pytest.raises(
        LakehouseError, match=r"LOADER is not at .*/none\.p8\. No login was attempted\. Correct private_key"
    ):
        snowflake(tmp_path / "none.p8").query("select 1")


def test_query_invalid_key_file_is_refused(tmp_path: Path):
    path = tmp_path / "key.p8"
    path.write_text("not a key")
    with pytest.raises(LakehouseError, match=r"key\.p8 is not a readable PEM private key"):
        snowflake(path).query("select 1")


@pytest.mark.parametrize("refreshes", [(1, 2, 2), (1, 1, 2), (1, 1, 2, 3, 3)])
def test_table_state_has_the_rows_of_its_metadata_file(tmp_path: Path, refreshes: tuple[int, ...]):
    account = snowflake(tmp_path / "key.p8", Refreshed)
    last = refreshes[-1]
    account._answers = chain(refreshes, repeat(last))
    assert account.table_state("S", "T") == TableState(f"{last}.metadata.json", last)


def test_table_state_of_table_in_constant_change_is_refused(tmp_path: Path):
    account = snowflake(tmp_path / "key.p8", Refreshed)
    account._answers = iter(range(100))
    with pytest.raises(LakehouseError, match=r"table DB\.S\.T was refreshed during each of 3 counts .* Run the check"):
        account.table_state("s", "t")


def test_query_totals_reads_the_database_as_it_is_written(tmp_path: Path):
    account = snowflake(tmp_path / "key.p8", CaseSensitive, "lake")
    account._answers = repeat(3)
    metadata = SimpleNamespace(current_snapshot_id=7)
    exposed = SimpleNamespace(metadata=metadata, schema=Schema, current_snapshot=lambda: metadata)
    catalog = SimpleNamespace(table_at=lambda *_: exposed, load=lambda _: exposed)
    resources: Any = SimpleNamespace(snowflake=account, catalog=catalog)
    totals = SnowflakeReader().query_totals(Topic(name="t"), TableRef("s", "t"), resources)
    assert (totals.rows, totals.snapshot_id) == (3, 7)
