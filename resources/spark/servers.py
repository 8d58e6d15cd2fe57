"""The kinds of Spark Connect servers.

To add one, write a class that derives from Spark and add it to SERVERS. A separate distribution names its class as an
entry point of the group `lakehouse.spark`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import ClassVar

from lakehouse.core.registry import implementations
from resources.forms import Form
from resources.masked_field import masked_field
from resources.spark.spark import Spark


class Connect(Spark):
    """A Spark Connect server at an address: the embedded one or a cluster's."""

    name = "connect"
    address_check = (
        "`spark.remote` in lakehouse.yaml (SPARK_REMOTE): its format is sc://host:port/;use_ssl=true;token=…, with `=` "
        "in the token written as %3D"
    )

    FORMS: ClassVar = {"remote": Form(r"sc://[^\s/]\S*", "the address of a Spark Connect server", "sc://spark:15002")}

    remote: str = masked_field(
        description="Address as `sc://host:port`, with `/;use_ssl=true;token=…` if the server requires a token."
    )

    def address(self) -> str:
        return self.remote


SERVERS: Sequence[type[Spark]] = (Connect,)
"""The kinds of this project. The first is the default."""


@cache
def registered() -> Mapping[str, type[Spark]]:
    """Return all kinds by name: this project's and those of installed distributions."""
    return implementations(SERVERS, "lakehouse.spark")
