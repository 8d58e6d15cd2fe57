"""Streams whose resources reach their systems through proxies."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import boto3
from proxy import GLUE_STALE, Answer, Proxy, Request
from pyiceberg.catalog import load_catalog
from support import Stream

from lakehouse.core import naming
from lakehouse.pipeline.clients import Clients
from resources.catalog import Catalog
from resources.schema_registry import SchemaRegistry

Proxied = TypeVar("Proxied", "ProxiedStream", "GlueStream")


class GlueCatalog(Catalog):
    """A Glue catalog whose address is a setting."""

    glue_endpoint: str

    def spark_settings(self) -> dict[str, str]:
        catalogs = (naming.CATALOG, self.cleaning)
        endpoints = {f"spark.sql.catalog.{name}.glue.endpoint": self.glue_endpoint for name in catalogs}
        return super().spark_settings() | endpoints

    def file_io(self) -> dict[str, str]:
        return super().file_io() | {"glue.endpoint": self.glue_endpoint}


class ProxiedStream(Stream):
    """A stream whose S3 and schema registry are behind a proxy each."""

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
        given = self.resources.catalog
        self.catalog = GlueCatalog(
            type="glue",
            warehouse=given.warehouse,
            s3_endpoint=given.s3_endpoint,
            region=given.region,
            glue_endpoint=self.glue.address,
        )

    @property
    def proxies(self) -> list[Proxy]:
        return [self.glue]

    @property
    def systems(self) -> Clients:
        return replace(super().systems, catalog=self.catalog)

    def table(self, name: str | None = None) -> Any:
        catalog = load_catalog(
            "judge",
            type="glue",
            **{"s3.endpoint": os.environ["AWS_ENDPOINT_URL_S3"], "s3.region": os.environ["AWS_REGION"]},
        )
        identifier = (self.namespace, name or self.topic.table)
        return catalog.load_table(identifier) if catalog.table_exists(identifier) else None


def refuse_stale(request: Request) -> Answer | None:
    """What AWS answers to an UpdateTable of a version that is no longer the newest."""
    if not request.target.endswith("UpdateTable"):
        return None
    asked = json.loads(request.body)
    if "VersionId" not in asked:
        return None
    glue = boto3.client("glue")
    found = glue.get_table(DatabaseName=asked["DatabaseName"], Name=asked["TableInput"]["Name"])["Table"]
    if found.get("VersionId") == asked["VersionId"]:
        return None
    return 400, [("Content-Length", str(len(GLUE_STALE)))], GLUE_STALE


@contextmanager
def proxied(stream: Proxied) -> Iterator[Proxied]:
    """A stream of a class above, for a while. Spark keeps the catalog that a session once used: this gets its own."""
    stream.resources.spark.close()
    with ExitStack() as proxies:
        for proxy in stream.proxies:
            proxies.enter_context(proxy)
        yield stream
    stream.resources.spark.close()
