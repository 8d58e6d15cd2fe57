"""The base of Snowflake resources: an address and an administrator's session."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse.deploy.resource import Resource, T
from lakehouse.deploy.snowflake.administrator import Administrator


@dataclass(frozen=True, repr=False)
class SnowflakeResource(Resource[T]):
    """A resource in one account."""

    address: str
    administrator: Administrator
