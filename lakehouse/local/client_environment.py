"""The environment variables for clients of the embedded stack. With others, the same clients use the clouds."""

from collections.abc import Mapping

from lakehouse.core.errors import LakehouseError
from lakehouse.local.dagster import dagster_servers
from lakehouse.local.home import Credentials, Home
from lakehouse.local.processes import ports
from lakehouse.local.processes.description import LOOPBACK, Context
from lakehouse.local.processes.process import running
from lakehouse.local.servers import kafka_server

REGION = "eu-west-1"
ACCOUNT = "123456789012"
"""Id of the local AWS account, which is moto's."""
SNOWFLAKE_ROLE = "lakehouse-snowflake"
"""The IAM role that Snowflake's external volume and catalog integration assume."""
BUCKET = "lakehouse"


def environment(home: Home | None = None) -> dict[str, str]:
    """Return the variables of the running stack of a state folder.

    Args:
        home: The state folder; by default that of LAKEHOUSE_HOME.
    """
    home = home or Home.default()
    port_by_name = ports.recorded(home)
    if set(port_by_name) != set(ports.USUAL) or not running(home):
        raise LakehouseError(f"The embedded stack is not up in {home.path}. Nothing was done. Run `lakehouse up`")
    return variables(home, port_by_name, Credentials.of(home))


def context(home: Home, port_by_name: Mapping[str, int]) -> Context:
    """Return the input for the descriptions of a stack's servers."""
    credentials = Credentials.of(home)
    return Context(home, port_by_name, credentials, variables(home, port_by_name, credentials))


def variables(home: Home, port_by_name: Mapping[str, int], credentials: Credentials) -> dict[str, str]:
    """Return the variables of a stack with these ports and credentials."""

    def url(name: str) -> str:
        return f"http://{LOOPBACK}:{port_by_name[name]}"

    return {
        "KAFKA_BOOTSTRAP_SERVERS": f"{LOOPBACK}:{port_by_name['kafka']}",
        **kafka_server.client_variables(home, credentials),
        "SCHEMA_REGISTRY_URL": f"{url('registry')}/apis/ccompat/v7",
        "AWS_ENDPOINT_URL": url("aws"),
        "AWS_ENDPOINT_URL_S3": url("s3"),
        "PYICEBERG_CATALOG__GLUE__S3__ENDPOINT": url("s3"),  # pyiceberg ignores AWS_ENDPOINT_URL_S3
        "AWS_ACCESS_KEY_ID": credentials.aws_access_key_id,
        "AWS_SECRET_ACCESS_KEY": credentials.aws_secret_access_key,
        "AWS_SESSION_TOKEN": "",  # the user's token is of another account
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "ICEBERG_CATALOG_URI": f"sqlite:///{home.catalog}",
        "ICEBERG_WAREHOUSE": f"s3://{BUCKET}/warehouse",
        "GLUE_CATALOG_ID": ACCOUNT,
        # Without TLS, PySpark sends a token to `localhost` only, so scripts need this name. [::1] is reserved
        # (reserved.py), and this project's channel connects to 127.0.0.1 (resources/spark/connection.py).
        "SPARK_REMOTE": f"sc://localhost:{port_by_name['spark']}",
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": credentials.spark_token,
        "SNOWFLAKE_ACCOUNT": "LOCAL",
        "SNOWFLAKE_HOST": LOOPBACK,
        "SNOWFLAKE_PORT": str(port_by_name["snowflake"]),
        "SNOWFLAKE_PROTOCOL": "http",
        "SNOWFLAKE_USER": "LAKEHOUSE",
        "SNOWFLAKE_PRIVATE_KEY_PATH": str(credentials.snowflake_private_key_path),
        "SNOWFLAKE_ROLE": "LAKEHOUSE",
        "SNOWFLAKE_WAREHOUSE": "LAKEHOUSE",
        "SNOWFLAKE_DATABASE": "LAKEHOUSE",
        "SNOWFLAKE_AWS_ROLE_ARN": f"arn:aws:iam::{ACCOUNT}:role/{SNOWFLAKE_ROLE}",
        "DAGSTER_HOME": str(dagster_servers.home_folder(home)),
        "LAKEHOUSE_UI_URL": url("dagster"),
        # No proxy for the loopback interface, regardless of the user's environment.
        "NO_PROXY": f"{LOOPBACK},localhost",
        "no_proxy": f"{LOOPBACK},localhost",
    }
