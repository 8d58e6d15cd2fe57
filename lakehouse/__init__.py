"""Kafka topics as audited Apache Iceberg tables."""

from pkgutil import resolve_name

DISTRIBUTION = "lakehouse"
"""The name of the distribution that contains this package."""

_COMPONENTS = ("LakehouseComponent", "TopicComponent")


def __dir__() -> list[str]:
    return [*globals(), *_COMPONENTS]


def __getattr__(name: str) -> object:
    """Import a Dagster component at its first use: the commands do not need Dagster's components."""
    if name not in _COMPONENTS:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return resolve_name(f"lakehouse.components:{name}")
