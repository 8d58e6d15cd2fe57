"""Check rules for modules that no linter has: lengths, imports, suppressed type errors."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

PRODUCTION = ("lakehouse", "assets", "resources", "spark")
MOST_LINES = 600
MOST_SUPPRESSED = 20
DEFERRED = {
    # Definitions are loaded by every process of Dagster. The engine is loaded by the steps that run it.
    "assets": {"assets", "dagster", "lakehouse"},
    # Definitions load all resources, each of which loads the library of its client when it first connects.
    "resources": {
        *("aws_msk_iam_sasl_signer", "boto3", "botocore", "confluent_kafka", "cryptography", "dagster_pyspark"),
        *("dagster_snowflake", "httpx2", "openlineage", "pyarrow", "pyiceberg", "pyspark", "resources", "snowflake"),
    },
    # Definitions load the configuration, and Spark's Python workers the formats, without Iceberg's types.
    "lakehouse/core": {"pyiceberg"},
    "lakehouse/formats": {"confluent_kafka", "pyiceberg"},
    "lakehouse/config": {"pyiceberg"},
    # Definitions load the class of each reader.
    "lakehouse/readers": {"duckdb", "lakehouse", "openlineage", "pyiceberg", "resources"},
    # `status` shares a module with `query`, and loads no library of an engine. Polars may not be installed.
    "lakehouse/query": {"lakehouse", "polars", "pyspark"},
    # The compiled decoder may not be installed, and the driver does not load it.
    "spark/native": {"lakehouse_native", "pyiceberg"},
    # Spark's Python workers load the decoder of Protobuf for topics in Protobuf only.
    "spark": {"ptars", "pyiceberg"},
    # The embedded stack is not installed in the cloud, and `stream` handles signals before it loads the engine. Some
    # commands use clients that take seconds to load only with an option, or for some topics.
    "lakehouse/cli": {"assets", "dagster", "lakehouse", "resources"},
}
"""Libraries that functions of a package may import. All other imports are at the top of their module.

tools/import_budgets.py has the budgets: what must not be loaded by what.
"""
_SUPPRESSED = re.compile(r"# type: ignore(?P<reason>\[[\w, -]+\]  # \S.*)?")
_UNTYPED_CAST = re.compile(r"\bcast\(Any\b")


def violations(folder: Path) -> Iterator[str]:
    """Yield each violation in the tracked Python files of a checkout, with its remedy."""
    command = ["git", "-C", str(folder), "ls-files", "-z", "*.py"]
    tracked = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    modules = {name: (folder / name).read_text() for name in tracked if (folder / name).is_file()}
    production = {name: text for name, text in modules.items() if name.startswith(PRODUCTION)}
    yield from _long(modules)
    yield from _suppressed(production)
    trees = {name: ast.parse(text) for name, text in production.items()}
    yield from _imported_in_functions(trees)
    yield from _import_cycles(trees)


def _long(modules: Mapping[str, str]) -> Iterator[str]:
    for name, text in modules.items():
        lines = text.count("\n")
        if lines > MOST_LINES:
            yield f"{name} has {lines} lines, and {MOST_LINES} are allowed. Split it by idea"


def _suppressed(modules: Mapping[str, str]) -> Iterator[str]:
    count = 0
    for name, text in modules.items():
        for number, line in enumerate(text.splitlines(), 1):
            if match := _SUPPRESSED.search(line):
                count += 1
                if not match["reason"]:
                    yield f"{name}:{number} suppresses a type error without its code and a reason. Add both"
            if _UNTYPED_CAST.search(line):
                yield f"{name}:{number} casts to Any. Declare the type"
    if count > MOST_SUPPRESSED:
        yield f"{count} type errors are suppressed, and {MOST_SUPPRESSED} are allowed. Correct the types"


def _imported_in_functions(trees: Mapping[str, ast.Module]) -> Iterator[str]:
    for name, tree in trees.items():
        allowed = next((roots for package, roots in DEFERRED.items() if name.startswith(f"{package}/")), set())
        functions = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
        nodes = {n for function in functions for n in ast.walk(function) if isinstance(n, ast.Import | ast.ImportFrom)}
        for node in sorted(nodes, key=lambda node: node.lineno):
            for module in [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]:
                if module.partition(".")[0] not in allowed:
                    yield f"{name}:{node.lineno} imports {module} in a function. Import it at the top of the module"


def _import_cycles(trees: Mapping[str, ast.Module]) -> Iterator[str]:
    """Yield cycles of modules until none is left, each without the last import of those before."""
    modules = {name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): name for name in trees}
    imports = {module: _imports(module, name, trees[name], modules) for module, name in modules.items()}
    while True:
        try:
            TopologicalSorter(imports).prepare()
            return
        except CycleError as error:
            cycle = error.args[1][::-1]
            imports[cycle[-2]].remove(cycle[-1])
            yield (
                f"The imports {' → '.join(cycle)} form a cycle. Move what the modules share to a lower module, pass a "
                f"value instead of its owner, or declare a Protocol in the lower module"
            )


def _imports(module: str, name: str, tree: ast.Module, modules: Mapping[str, str]) -> list[str]:
    """Return the modules that a module imports anywhere: at its top, for annotations and in functions.

    A package is a module with the imports of its __init__.py. Importing one of its modules is no import of the package.
    """
    package = module if name.endswith("/__init__.py") else module.rpartition(".")[0]
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            source = resolve_name("." * node.level + (node.module or ""), package)
            members = {f"{source}.{alias.name}" for alias in node.names}
            imported |= {member if member in modules else source for member in members}
    return sorted(imported & modules.keys())


if __name__ == "__main__":
    sys.exit("\n".join(violations(Path(__file__).parent.parent)) or None)
