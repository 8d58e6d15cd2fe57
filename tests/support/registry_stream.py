"""Topics of tests whose schema registry is a server in this process, which knows GUIDs and records lookups."""

from __future__ import annotations

from dataclasses import replace

from lakehouse.pipeline.clients import Clients
from resources.schema_registry import SchemaRegistry
from tests.support.servers.registry_server import RegistryServer
from tests.support.topics import Stream


class RegistryStream(Stream):
    """A stream with its own schema registry."""

    registry: RegistryServer
    client: SchemaRegistry

    @property
    def systems(self) -> Clients:
        return replace(super().systems, schema_registry=self.client)

    def listen(self, registry: RegistryServer) -> None:
        self.registry, self.client = registry, SchemaRegistry(url=registry.address)
