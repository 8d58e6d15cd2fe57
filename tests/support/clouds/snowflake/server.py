"""A local Snowflake server with a known administrator, and tables for it in the S3 and Glue of the stack."""

from __future__ import annotations

import base64
import datetime as dt
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from lakehouse.local.servers import snowflake_server
from resources.snowflake.snowflake import Snowflake
from tools.repository import PROJECT

BIG = 9_007_199_254_740_993
"""2^53 + 1: the first integer that a double cannot hold."""

TRADES = pa.schema(
    [
        pa.field("userid", pa.string()),
        pa.field("quantity", pa.int64()),
        pa.field("lots", pa.int32()),
        pa.field("price", pa.decimal128(18, 4)),
        pa.field("traded_at", pa.timestamp("us", tz="UTC")),
        pa.field("$$offset", pa.int64()),
    ]
)


def trades(count: int, start: int = 0) -> pa.Table:
    """Return rows whose sums exceed the precision of a double."""
    return pa.Table.from_pylist(
        [
            {
                "userid": f"User_{i % 7}",
                "quantity": BIG + i,
                "lots": i % 100,
                "price": Decimal(i) / Decimal(10_000) + Decimal("12345678901.1111"),
                "traded_at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=i),
                "$$offset": i,
            }
            for i in range(start, start + count)
        ],
        schema=TRADES,
    )


def key_pair(folder: Path, name: str) -> tuple[Path, str]:
    """Create a private key, and return its file and the base64 body of its public key."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    path = folder / name
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    der = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return path, base64.b64encode(der).decode()


@dataclass
class Server:
    """A running server, with its port and credentials."""

    port: int
    admin_password: str
    key_path: Path
    public_key: str

    def ensure(self) -> None:
        """Create the account objects that `lakehouse up` creates after the start."""
        snowflake_server.ensure(
            host="127.0.0.1",
            port=self.port,
            account="LOCAL",
            admin_password=self.admin_password,
            user="LOADER",
            role="LOADER_ROLE",
            warehouse="WH",
            database="DB",
            public_key=self.public_key,
        )

    def resource(self, **overrides: Any) -> Snowflake:
        """Return the project's resource for this server."""
        settings = {
            "account": "LOCAL",
            "user": "LOADER",
            "private_key_path": str(self.key_path),
            "role": "LOADER_ROLE",
            "warehouse": "WH",
            "database": "DB",
            "aws_role_arn": "arn:aws:iam::123456789012:role/lakehouse-snowflake",
            "glue_catalog_id": "123456789012",
            "region": os.environ["AWS_REGION"],
            "host": "127.0.0.1",
            "port": self.port,
            "protocol": "http",
        }
        return Snowflake(**(settings | overrides))

    def administrator(self) -> Any:
        """Open a session of the administrator by the real connector."""
        import snowflake.connector

        return snowflake.connector.connect(
            account="LOCAL",
            user="ADMIN",
            password=self.admin_password,
            host="127.0.0.1",
            port=self.port,
            protocol="http",
            login_timeout=10,
            network_timeout=30,
            platform_detection_timeout_seconds=0,
        )

    def admin(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements as the administrator, and return the rows of the last one."""
        with self.administrator() as connection:
            return [connection.cursor().execute(statement).fetchall() for statement in statements][-1]


@pytest.fixture(scope="session")
def server(stack: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with started(tmp_path_factory.mktemp("snowflake")) as running:
        running.ensure()
        running.resource().ensure_account_objects("s3://lakehouse/")
        yield running


@contextmanager
def started(home: Path) -> Iterator[Server]:
    """Run a new, empty server, which uses the AWS endpoints of this process's environment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    key_path, public_key = key_pair(home, "key.p8")
    running = Server(port, secrets.token_urlsafe(8), key_path, public_key)
    environment = os.environ | {
        "LAKEHOUSE_HOME": str(home),
        "SNOWFLAKE_PORT": str(port),
        "SNOWFLAKE_ACCOUNT": "LOCAL",
        "SNOWFLAKE_ADMIN_PASSWORD": running.admin_password,
    }
    with (home / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.clouds.snowflake.strict_server"],
            cwd=PROJECT,
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + 60
        while not _healthy(port):
            assert process.poll() is None and time.monotonic() < deadline, (home / "log").read_text()
            time.sleep(0.1)
        yield running
    finally:
        process.terminate()
        process.wait(10)


def _healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2) as response:
            return response.status == 200
    except OSError:
        return False


class Lake:
    """Tables that pyiceberg creates in a separate SQL catalog and registers in Glue, as the project does."""

    def __init__(self, folder: Path, bucket: str = "lakehouse"):
        from pyiceberg.catalog.glue import GlueCatalog
        from pyiceberg.catalog.sql import SqlCatalog

        s3 = {
            "s3.endpoint": os.environ.get("AWS_ENDPOINT_URL_S3", os.environ["AWS_ENDPOINT_URL"]),
            "s3.region": os.environ["AWS_REGION"],
        }
        self.database = f"test_{uuid.uuid4().hex[:8]}"
        self.warehouse = f"s3://{bucket}/{self.database}"
        self.file = folder / "catalog.db"
        self.sql = SqlCatalog("test", uri=f"sqlite:///{self.file}", warehouse=self.warehouse, **s3)
        self.glue = GlueCatalog("glue", **s3)
        self.sql.create_namespace(self.database)
        self.glue.create_namespace(self.database)

    def create(self, name: str, rows: pa.Table) -> Any:
        """Create a table with these rows, and register it in Glue."""
        table = self.sql.create_table((self.database, name), schema=rows.schema)
        if rows.num_rows:
            table.append(rows)
        self.glue.register_table((self.database, name), table.metadata_location)
        return table

    def spark_settings(self) -> dict[str, str]:
        """Return the Spark settings of the SQL catalog."""
        properties = {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{self.file}",
            "jdbc.schema-version": "V1",
            "warehouse": self.warehouse,
            "cache-enabled": "false",
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": os.environ.get("AWS_ENDPOINT_URL_S3", os.environ["AWS_ENDPOINT_URL"]),
            "s3.path-style-access": "true",
            "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
            "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
            "client.region": os.environ["AWS_REGION"],
        }
        catalog = "spark.sql.catalog.test"
        return {catalog: "org.apache.iceberg.spark.SparkCatalog"} | {
            f"{catalog}.{key}": value for key, value in properties.items()
        }

    def promote(self, table: Any) -> None:
        """Point Glue at the table's current metadata."""
        name = table.name()
        self.glue.drop_table(name)
        self.glue.register_table(name, table.metadata_location)
