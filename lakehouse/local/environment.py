"""The environment variables that lead every process to the embedded stack, as others would lead it to the clouds."""

from __future__ import annotations

from collections.abc import Mapping

from lakehouse.core.errors import LakehouseError
from lakehouse.local import aws, dagster, kafka, ports, s3
from lakehouse.local.context import LOOPBACK, Context
from lakehouse.local.credentials import Credentials
from lakehouse.local.home import Home
from lakehouse.local.process import running

REGION = "eu-west-1"


def environment(home: Home | None = None) -> dict[str, str]:
    """The variables of the stack that runs in a state folder (by default, LAKEHOUSE_HOME's).

    Raises: LakehouseError when none does.
    """
    home = home or Home.default()
    known = ports.recorded(home)
    if set(known) != set(ports.USUAL) or not running(home):
        raise LakehouseError(f"The embedded stack is not up in {home.path}. Nothing was done. Run `lakehouse up`")
    return variables(home, known, Credentials.of(home))


def context(home: Home, known: Mapping[str, int]) -> Context:
    """What the servers of a stack are described from."""
    credentials = Credentials.of(home)
    return Context(home, known, credentials, variables(home, known, credentials))


def variables(home: Home, known: Mapping[str, int], credentials: Credentials) -> dict[str, str]:
    """The variables of a stack with these ports and credentials."""

    def url(name: str) -> str:
        return f"http://{LOOPBACK}:{known[name]}"

    return {
        "KAFKA_BOOTSTRAP_SERVERS": f"{LOOPBACK}:{known['kafka']}",
        **kafka.client_variables(home, credentials),
        "SCHEMA_REGISTRY_URL": f"{url('registry')}/apis/ccompat/v7",
        "AWS_ENDPOINT_URL": url("aws"),
        "AWS_ENDPOINT_URL_S3": url("s3"),
        "PYICEBERG_CATALOG__GLUE__S3__ENDPOINT": url("s3"),  # pyiceberg does not read AWS's: docs/readers.md
        "AWS_ACCESS_KEY_ID": credentials.aws_access_key_id,
        "AWS_SECRET_ACCESS_KEY": credentials.aws_secret_access_key,
        "AWS_SESSION_TOKEN": "",  # the user's own, of another account, must not come along
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "ICEBERG_CATALOG_URI": f"sqlite:///{home.catalog}",
        "ICEBERG_WAREHOUSE": f"s3://{s3.BUCKET}/warehouse",
        "GLUE_CATALOG_ID": aws.ACCOUNT,
        # PySpark sends a token without TLS to `localhost` only: scripts need the name. [::1] is reserved (reserved.py),
        # and this project's own channel goes to 127.0.0.1 (resources/spark_channel.py).
        "SPARK_REMOTE": f"sc://localhost:{known['spark']}",
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": credentials.spark_token,
        "SNOWFLAKE_ACCOUNT": "LOCAL",
        "SNOWFLAKE_HOST": LOOPBACK,
        "SNOWFLAKE_PORT": str(known["snowflake"]),
        "SNOWFLAKE_PROTOCOL": "http",
        "SNOWFLAKE_USER": "LAKEHOUSE",
        "SNOWFLAKE_PRIVATE_KEY_PATH": str(credentials.snowflake_private_key_path),
        "SNOWFLAKE_ROLE": "LAKEHOUSE",
        "SNOWFLAKE_WAREHOUSE": "LAKEHOUSE",
        "SNOWFLAKE_DATABASE": "LAKEHOUSE",
        "SNOWFLAKE_AWS_ROLE_ARN": f"arn:aws:iam::{aws.ACCOUNT}:role/{aws.SNOWFLAKE_ROLE}",
        "DAGSTER_HOME": str(dagster.home_folder(home)),
        "LAKEHOUSE_UI_URL": url("dagster"),
        # No proxy for the loopback interface, whatever the user's environment says about the rest.
        "NO_PROXY": f"{LOOPBACK},localhost",
        "no_proxy": f"{LOOPBACK},localhost",
    }
