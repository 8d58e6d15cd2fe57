"""The configuration of a new project: lakehouse.yaml, its environments, and the schemas of both for editors."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, Field

from lakehouse.config.discovery import LOCAL
from lakehouse.core.errors import LakehouseError

_STARTER = Path(__file__).with_name("starter")
_NAMESPACE = "namespace: shop"
_SCHEMA = Path(__file__).parent.with_name("lakehouse.schema.json")
_SCHEMA_LINE = "# yaml-language-server: $schema=environments.schema.json\n"


class Servers(BaseModel):
    """Addresses of servers that exist, which a new project uses in place of the embedded stack."""

    kafka: str | None = Field(None, description="Kafka's bootstrap servers, HOST:PORT.")
    registry: str | None = Field(None, description="The URL of the schema registry.")
    spark: str | None = Field(None, description="The Spark Connect server, sc://HOST:PORT.")
    catalog: str | None = Field(
        None, description="The database of an Iceberg catalog, such as sqlite:////data/catalog.db."
    )
    warehouse: str | None = Field(None, description="Where new tables are, s3://BUCKET/PATH.")
    s3_endpoint: str | None = Field(None, description="The URL of an S3 that is not Amazon's.")
    region: str | None = Field(None, description="The AWS region.")

    @property
    def environment(self) -> str:
        """The name of the project's environment."""
        return "dev" if self.environments() else LOCAL

    def missing(self) -> list[str]:
        """Return the options of addresses that the environment `dev` needs and does not have; none for the stack."""
        is_embedded = self.environments() is None
        return [] if is_embedded else [name for name in KEYS if name not in _OPTIONAL and not getattr(self, name)]

    def environments(self) -> dict[str, Any] | None:
        """Return the content of environments.yaml: the environment `dev`; None for the embedded stack."""
        systems: dict[str, dict[str, str]] = {}
        for option, (system, key) in KEYS.items():
            if address := getattr(self, option):
                systems.setdefault(system, {"type": "sql"} if system == "catalog" else {})[key] = address
        return {"dev": systems} if systems else None


KEYS = {
    "kafka": ("kafka", "bootstrap_servers"),
    "registry": ("schema_registry", "url"),
    "spark": ("spark", "remote"),
    "catalog": ("catalog", "uri"),
    "warehouse": ("catalog", "warehouse"),
    "s3_endpoint": ("catalog", "s3_endpoint"),
    "region": ("catalog", "region"),
}
"""The system and key of each address."""

_OPTIONAL = ("s3_endpoint", "region")
"""The addresses that an environment may lack."""


def configuration_files(folder: Path, servers: Servers) -> dict[str, str]:
    """Return the texts of the configuration of a new project, by their names.

    Args:
        folder: The folder of the project, whose name becomes the namespace of its tables.
        servers: The servers of its environment.
    """
    environments = servers.environments()
    namespace = re.sub(r"[^a-z0-9]+", "_", folder.resolve().name.lower()).strip("_")[:100]
    if not namespace[:1].isalpha():
        namespace = f"project_{namespace}".rstrip("_")
    return {
        "lakehouse.yaml": _STARTER.joinpath("lakehouse.yaml")
        .read_text()
        .replace(_NAMESPACE, f"namespace: {namespace}"),
        "environments.yaml": _STARTER.joinpath("environments.yaml").read_text()
        if environments is None
        else _SCHEMA_LINE + yaml.safe_dump(environments, sort_keys=False),
        "lakehouse.schema.json": _SCHEMA.read_text(),
        "environments.schema.json": '{"$ref": "lakehouse.schema.json#/properties/environments/anyOf/0"}\n',
    }


def write_new(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files of a new project.

    Args:
        folder: The folder of the project, which may exist.
        files: The texts of the files, by their paths in the folder.

    Raises:
        LakehouseError: One of the files exists, and nothing is written then; or a file cannot be written.
    """
    if existing := [place for place in files if (folder / place).exists()]:
        raise LakehouseError(
            f"{folder.resolve()} has {', '.join(existing)} already", "Nothing was written", "Choose another folder"
        )
    try:
        for place, text in files.items():
            path = folder / place
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x") as file:
                file.write(text)
    except OSError as error:
        raise LakehouseError(f"{path} cannot be written: {error.strerror}", remedy="Choose another folder") from error
