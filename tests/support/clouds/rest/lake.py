"""The catalog of the tables at a server of the tests, as lakehouse.yaml would declare it."""

import os
from typing import Any

from resources.iceberg.catalog import Catalog
from tests.support.clouds.rest.client import CREDENTIAL
from tests.support.clouds.rest.server import SCOPE, WAREHOUSE, Polaris, Vending


def catalog_at(server: Polaris, **settings: Any) -> Catalog:
    """Return the catalog. A server that issues credentials for files names the address of S3, too."""
    files = {"access_delegation": "vended-credentials"}
    if not isinstance(server, Vending):
        files = {"s3_endpoint": os.environ["AWS_ENDPOINT_URL_S3"]}
    login = {"credential": CREDENTIAL, "scope": SCOPE}
    place = {"type": "rest", "uri": server.address, "warehouse": WAREHOUSE, "region": os.environ["AWS_REGION"]}
    return Catalog(**place | login | files | settings)


def declaration_of(server: Vending) -> dict[str, Any]:
    """Return the catalog as lakehouse.yaml declares it. ICEBERG_CATALOG_CREDENTIAL has the login."""
    return {
        "type": "rest",
        "uri": server.address,
        "warehouse": WAREHOUSE,
        "credential": {"env": "ICEBERG_CATALOG_CREDENTIAL"},
        "scope": SCOPE,
        "access_delegation": "vended-credentials",
        "region": {"env": "AWS_REGION"},
    }
