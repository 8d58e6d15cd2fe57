"""Debezium's connector and PostgreSQL: the table is equal to the one of the database."""

import base64
import json

import psycopg2
from sqlalchemy import make_url

from lakehouse.config.model import Topic
from lakehouse.pipeline.ingestion import ingest
from tests.support.debezium.connector import connector
from tests.support.servers.postgresql import postgresql
from tests.support.topics import Stream, consume
from tests.support.waiting import wait_until

TABLE = """
CREATE TABLE public.docs (
    id bigint PRIMARY KEY, code text NOT NULL DEFAULT 'none', n int NOT NULL, body text, raw bytea, doc jsonb,
    words text[], small int[], large bigint[], ids uuid[]
)
"""
COLUMNS = ("id", "code", "n", "body", "raw", "doc", "words", "small", "large", "ids")
LONG = "SELECT string_agg(md5(({seed} * 1000 + i)::text), '') FROM generate_series(1, 300) i"
CREATE = f"""
INSERT INTO docs SELECT {{id}}, 'code', {{id}}, b, b::bytea, jsonb_build_object('b', b), array[b],
    (SELECT array_agg((i * 7919 * {{id}}) % 100003) FROM generate_series(1, 3000) i),
    (SELECT array_agg(i * 7919 * {{id}}) FROM generate_series(1, 3000) i),
    (SELECT array_agg(md5(({{id}} * 1000 + i)::text)::uuid) FROM generate_series(1, 300) i)
FROM ({LONG.format(seed="{id}")}) t(b)
"""


def schema():
    """Return the JSON Schema of the events."""
    texts = ("code", "body", "raw", "doc")
    row = {name: {"type": ["string", "null"]} for name in texts} | {n: {"type": "integer"} for n in ("id", "n")}
    row |= {name: {"type": ["array", "null"], "items": {"type": "string"}} for name in ("words", "ids")}
    row |= {name: {"type": ["array", "null"], "items": {"type": "integer"}} for name in ("small", "large")}
    row_schema = {"type": ["object", "null"], "properties": row}
    source = {"type": "object", "properties": {"lsn": {"type": "integer"}, "snapshot": {"type": "string"}}}
    events = {"before": row_schema, "after": row_schema, "op": {"type": "string"}, "source": source}
    return json.dumps({"type": "object", "properties": events})


def of_database(cursor):
    cursor.execute(f"SELECT {', '.join(COLUMNS)} FROM docs ORDER BY id")
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in cursor.fetchall()]
    for row in rows:
        row["raw"] = row["raw"] and base64.b64encode(row["raw"]).decode()
        row["ids"] = row["ids"] and row["ids"].strip("{}").split(",")
    return rows


def test_table_equals_database_after_changes(resources, tmp_path):
    with postgresql("logical") as url:
        database = make_url(url)
        connection = psycopg2.connect(
            host=database.host,
            port=database.port,
            user=database.username,
            password=database.password,
            dbname=database.database,
        )
        connection.autocommit = True
        cursor = connection.cursor()
        cursor.execute(TABLE)
        for id_ in range(1, 6):
            cursor.execute(CREATE.format(id=id_))
        prefix = f"p{id(connection):x}"
        declared = {
            **{"mode": "debezium", "key": "id", "value_format": "json", "errors": "log"},
            **{"value_schema_file": "schema.json", "value_schema": schema(), "name": f"{prefix}.public.docs"},
        }
        stream = Stream(resources, partitions=1, settings={})
        stream.topic = Topic.model_validate(declared)
        stream.create()
        events = lambda: consume(stream.name, 1)  # noqa: E731 (one expression)
        with connector(tmp_path, url, prefix, {"skipped.operations": "none", "table.include.list": "public.docs"}):
            wait_until(lambda: len(events()) >= 5, 180)
            changes = [
                "UPDATE docs SET n = n + 100 WHERE id = 1",
                "UPDATE docs SET id = 12, code = 'moved' WHERE id = 2",
                "UPDATE docs SET id = 13 WHERE id = 12",
                "DELETE FROM docs WHERE id = 3",
                "UPDATE docs SET body = 'short' WHERE id = 4",
                "UPDATE docs SET n = n + 100 WHERE id = 4",
                CREATE.format(id=0),
                "UPDATE docs SET code = '' WHERE id = 0",
                "DELETE FROM docs WHERE id = 5",
            ]
            for part in (changes[:1], changes[1:]):
                [_] = list(ingest(stream.namespace, stream.topic, stream.systems))
                count = len(events())
                for statement in part:
                    cursor.execute(statement)
                # A changed key has three events, and a deletion two.
                expected = count + (1 if part == changes[:1] else 2 * 3 + 2 * 2 + 4)
                wait_until(lambda expected=expected: len(events()) >= expected)
            stream.ingest()
            assert sum(b"__debezium_unavailable_value" in (event.value or b"") for event in events()) >= 5
            rows = [{name: row[name] for name in COLUMNS} for row in stream.rows()]
            database_rows = of_database(cursor)
            for row in (*rows, *database_rows):
                row["doc"] = row["doc"] if isinstance(row["doc"], dict) else json.loads(row["doc"])
            assert sorted(rows, key=lambda row: row["id"]) == database_rows
            assert stream.dead_letters() == []

            count = len(events())
            cursor.execute("TRUNCATE docs")
            cursor.execute(CREATE.format(id=9))
            wait_until(lambda: len(events()) >= count + 2)
            stream.ingest()
            assert [row["id"] for row in stream.rows()] == [9]
        connection.close()
