"""Streams whose resources access their systems through proxies."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

import boto3
from pyiceberg.catalog import Catalog as PyIcebergCatalog
from pyiceberg.catalog import load_catalog

from lakehouse.core.tables import naming
from lakehouse.pipeline.clients import Clients
from resources.iceberg.catalog import Catalog
from resources.schema_registry import SchemaRegistry
from tests.support.clouds.rest.client import CREDENTIAL
from tests.support.clouds.rest.lake import catalog_at
from tests.support.clouds.rest.server import SCOPE, WAREHOUSE, Polaris
from tests.support.servers.proxy import GLUE_STALE, Proxy, Request, Response
from tests.support.topics import Stream, s3_settings

Proxied = TypeVar("Proxied", "ProxiedStream", "GlueStream", "RestStream")


class GlueCatalog(Catalog):
    """A Glue catalog with a configurable address."""

    glue_endpoint: str

    def spark_settings(self) -> dict[str, str]:
        catalogs = (naming.CATALOG, self.cleaning)
        endpoints = {f"spark.sql.catalog.{name}.glue.endpoint": self.glue_endpoint for name in catalogs}
        return super().spark_settings() | endpoints

    def file_io(self) -> dict[str, str]:
        return super().file_io() | {"glue.endpoint": self.glue_endpoint}


class ProxiedStream(Stream):
    """A stream with a proxy in front of S3 and one in front of the schema registry."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.s3 = Proxy(os.environ["AWS_ENDPOINT_URL_S3"])
        self.registry = Proxy(os.environ["SCHEMA_REGISTRY_URL"])

    @property
    def proxies(self) -> list[Proxy]:
        return [self.s3, self.registry]

    @property
    def systems(self) -> Clients:
        catalog = self.resources.catalog.model_copy(update={"s3_endpoint": self.s3.address})
        return replace(super().systems, catalog=catalog, schema_registry=SchemaRegistry(url=self.registry.address))


class GlueStream(Stream):
    """A stream whose catalog is Glue, behind a proxy that refuses stale versions, as AWS does and moto does not."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.glue = Proxy(os.environ["AWS_ENDPOINT_URL"], guard=refuse_stale)
        catalog = self.resources.catalog
        self.catalog = GlueCatalog(
            type="glue",
            warehouse=catalog.warehouse,
            s3_endpoint=catalog.s3_endpoint,
            region=catalog.region,
            glue_endpoint=self.glue.address,
        )

    @property
    def proxies(self) -> list[Proxy]:
        return [self.glue]

    @property
    def systems(self) -> Clients:
        return replace(super().systems, catalog=self.catalog)

    def independent_catalog(self) -> PyIcebergCatalog:
        return load_catalog("independent", type="glue", **s3_settings())


@dataclass
class RestStream(Stream):
    """A stream whose catalog is a REST catalog, behind a proxy that lets in one client with short-lived tokens."""

    server: Polaris = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.catalog = catalog_at(self.server)

    @property
    def proxies(self) -> list[Proxy]:
        return [self.server]

    @property
    def systems(self) -> Clients:
        return replace(super().systems, catalog=self.catalog)

    def independent_catalog(self) -> PyIcebergCatalog:
        return load_catalog(
            "independent",
            type="rest",
            uri=self.server.address,
            warehouse=WAREHOUSE,
            credential=CREDENTIAL,
            scope=SCOPE,
            **{"oauth2-server-uri": f"{self.server.address}/v1/oauth/tokens"},
            **s3_settings(),
        )


def refuse_stale(request: Request) -> Response | None:
    """Return the error of AWS for an UpdateTable of a version that is not the newest, else None."""
    if not request.target.endswith("UpdateTable"):
        return None
    update = json.loads(request.body)
    if "VersionId" not in update:
        return None
    glue = boto3.client("glue")
    table = glue.get_table(DatabaseName=update["DatabaseName"], Name=update["TableInput"]["Name"])["Table"]
    if table.get("VersionId") == update["VersionId"]:
        return None
    return 400, [("Content-Length", str(len(GLUE_STALE)))], GLUE_STALE


@contextmanager
def proxied(stream: Proxied) -> Iterator[Proxied]:
    """Use a proxied stream within a block, with a new Spark session, because a session keeps its first catalog."""
    stream.resources.spark.close()
    with ExitStack() as proxies:
        for proxy in stream.proxies:
            proxies.enter_context(proxy)
        yield stream
    stream.resources.spark.close()
