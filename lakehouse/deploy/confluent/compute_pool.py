"""Flink's compute pool, and the API of its region."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse.core.errors import LakehouseError
from lakehouse.deploy.confluent.confluent_resource import ConfluentResource
from lakehouse.deploy.resource import Outputs, Resource
from resources.confluent.flink import READY, ComputePool, Region
from resources.confluent.organization import Environment

POOL_SECONDS = 60 * 60
MAX_CFU = 10


@dataclass(frozen=True)
class FlinkCompute:
    """A compute pool, and the region to whose API its statements are sent."""

    pool_id: str
    region_id: str
    http_endpoint: str

    @staticmethod
    def of(pool: ComputePool, region: Region) -> FlinkCompute:
        """Combine a compute pool and its region."""
        return FlinkCompute(pool.id, region.id, region.http_endpoint)

    @property
    def region(self) -> Region:
        """The region."""
        return Region(self.region_id, self.http_endpoint)


@dataclass(frozen=True, kw_only=True, repr=False)
class ComputePoolResource(ConfluentResource[FlinkCompute]):
    """The compute pool in which statements run."""

    address = "confluent/compute_pool"
    environment: Resource[Environment]

    @property
    def label(self) -> str:
        """The compute pool with its name."""
        return f"compute pool '{self.names.confluent}'"

    def read(self, outputs: Outputs) -> FlinkCompute | None:
        """Read the compute pool by name.

        Raises:
            LakehouseError: Confluent offers no Flink in the region.
        """
        pool = self.cloud.compute_pools(outputs[self.environment].id).find(self.names.confluent)
        return FlinkCompute.of(pool, self._region()) if pool else None

    def require_creatable(self, outputs: Outputs) -> None:
        """Refuse a region without Flink before anything is created.

        Raises:
            LakehouseError: Confluent offers no Flink in the region.
        """
        self._region()

    def create(self, outputs: Outputs) -> FlinkCompute:
        """Create the compute pool.

        Raises:
            LakehouseError: Confluent offers no Flink in the region.
        """
        region = self._region()
        pools = self.cloud.compute_pools(outputs[self.environment].id)
        pool = pools.create(self.names.confluent, self.names.region, MAX_CFU)
        return FlinkCompute.of(pool, region)

    def wait_until_ready(self, outputs: Outputs, current: FlinkCompute) -> FlinkCompute:
        """Wait until the compute pool runs and is listed."""
        pools = self.cloud.compute_pools(outputs[self.environment].id)
        self.wait_for_phase(lambda: pools.get(current.pool_id), READY, POOL_SECONDS)
        return self.wait_until_listed(outputs, POOL_SECONDS)

    def delete(self, outputs: Outputs, current: FlinkCompute) -> None:
        """Delete the compute pool."""
        pools = self.cloud.compute_pools(outputs[self.environment].id)
        pools.delete(current.pool_id)
        self.wait_until_gone(lambda: pools.get(current.pool_id), POOL_SECONDS)

    def _region(self) -> Region:
        region = self.cloud.regions().find(self.names.region)
        if region is None:
            raise LakehouseError(
                f"Confluent Cloud offers no Flink in AWS region {self.names.region}. No compute pool was created. "
                f"Choose another region for deployment '{self.names.deployment}', or remove its 'flink' statements"
            )
        return region
