"""The clients of the systems that the pipeline reads and writes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from resources.build import another
from resources.catalog import Catalog
from resources.kafka import Kafka
from resources.schema_registry import SchemaRegistry
from resources.spark import Spark

CLIENTS = ("kafka", "schema_registry", "spark", "catalog")
"""The keys of the Dagster resources that are these clients."""


@dataclass(frozen=True)
class Clients:
    """One client per system."""

    kafka: Kafka
    schema_registry: SchemaRegistry
    spark: Spark
    catalog: Catalog

    @staticmethod
    def of(resources: Any) -> Clients:
        """Return those of the resources, which are attributes by their keys, that the pipeline takes."""
        return Clients(**{name: getattr(resources, name) for name in CLIENTS})

    def apart(self) -> Clients:
        """Return clients with connections, and a Spark session, of their own, for another thread."""
        return Clients(another(self.kafka), another(self.schema_registry), self.spark.apart(), another(self.catalog))

    def close(self) -> None:
        """Close the Spark session, whose server may no longer be reachable."""
        with suppress(Exception):
            self.spark.close()
