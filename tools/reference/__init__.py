"""Reference pages that are generated from the code, so that they cannot differ from it.

`python -m tools.reference` writes them; tests/unit/test_reference.py compares them with the code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tools.reference.commands import commands
from tools.reference.configuration import configuration, json_schema
from tools.reference.dagster_objects import dagster_objects
from tools.reference.environment_variables import environment_variables
from tools.reference.errors import errors
from tools.reference.metadata_columns import metadata_columns
from tools.reference.runbook import runbook
from tools.reference.table_protocol import table_protocol

PAGES: Mapping[str, Callable[[], str]] = {
    "lakehouse.schema.json": json_schema,
    "reference/assets.md": dagster_objects,
    "reference/cli.md": commands,
    "reference/configuration.md": configuration,
    "reference/environment-variables.md": environment_variables,
    "reference/errors.md": errors,
    "reference/metadata-columns.md": metadata_columns,
    "reference/table-protocol.md": table_protocol,
    "runbook.md": runbook,
}
"""Functions that return the text of each generated file, by path in docs/."""
