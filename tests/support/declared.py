"""An environment that is declared in a file, without any servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from resources.iceberg.catalog import Catalog

EMBEDDED_READERS: dict[str, dict[str, dict[str, Any]]] = {"local": {"glue": {}, "snowflake": {}}}
"""Environments with the readers of the embedded stack, for a configuration that is not read from a file."""

NOWHERE = "127.0.0.1:1"
"""An address at which nothing answers."""


def declare(
    monkeypatch: pytest.MonkeyPatch, folder: Path, *, systems: dict[str, dict[str, Any]] | None = None, **entries: Any
) -> Catalog:
    """Write a lakehouse.yaml, let the process use it, and return the catalog of its environment, which is in SQLite.

    The other systems of the environment do not answer.

    Args:
        folder: The folder of the file and the catalog.
        systems: Settings that differ, by system.
        entries: The namespace, topics and routes.
    """
    names = dict.fromkeys(("account", "user", "role", "warehouse", "database", "aws_role_arn"), "x")
    of_aws = {"region": "us-east-1"}
    environment: dict[str, dict[str, Any]] = {
        "kafka": {"bootstrap_servers": NOWHERE},
        "schema_registry": {"url": f"http://{NOWHERE}"},
        "spark": {"remote": f"sc://{NOWHERE}"},
        "catalog": {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"},
        "glue": {**of_aws, "catalog_id": "123456789012"},
        "snowflake": {**of_aws, **names, "glue_catalog_id": "123456789012", "private_key_path": "none.p8"},
    }
    for system, settings in (systems or {}).items():
        environment[system] |= settings
    file = folder / "lakehouse.yaml"
    file.write_text(yaml.safe_dump({**entries, "environments": {"here": environment}}))
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(file))
    monkeypatch.setenv("LAKEHOUSE_ENV", "here")
    return Catalog(**environment["catalog"])
