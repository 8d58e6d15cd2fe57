"""Kafka topics as audited Apache Iceberg tables."""

from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name

DISTRIBUTION = "kafka-lakehouse"
"""The name of the distribution that contains this package."""

_COMPONENTS = ("LakehouseComponent", "TopicComponent")


def _refuse_foreign_packages() -> None:
    """Require that the packages beside this one are imported, and no others of these names.

    Raises:
        ImportError: Another package has one of the names.
    """
    for name in ("assets", "resources", "spark"):
        expected = Path(__file__).parent.with_name(name)
        spec = find_spec(name)
        actual = Path(spec.origin).parent if spec and spec.origin else None
        if actual != expected:
            raise ImportError(
                f"The package '{name}' of {DISTRIBUTION} is {expected}, but Python imports {actual or 'no package'} by "
                f"this name. Nothing was done. Rename the other package, or remove its folder from sys.path"
            )


_refuse_foreign_packages()


def __dir__() -> list[str]:
    return [*globals(), *_COMPONENTS]


def __getattr__(name: str) -> object:
    """Import a Dagster component at its first use: the commands do not need Dagster's components."""
    if name not in _COMPONENTS:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return resolve_name(f"lakehouse.components:{name}")
