"""Names of tables, branches and tags, derived from the name of a Kafka topic, and addresses of tables.

Kafka allows more names than tables do (letters, digits, `.`, `_`, `-`, up to 249 characters, case-sensitive), so they
are folded; `TableNames` of lakehouse.config.model refuses two topics that fold to the same name.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass, field, replace

from lakehouse.core.sql import SPARK
from lakehouse.core.table_protocol import DEAD_LETTERS, DRY_RUN_PREFIX

CATALOG = "lake"
"""Name of the Iceberg catalog in Spark and in pyiceberg (a SQL catalog stores it with every table)."""

PRIVATE_CATALOG = f"{CATALOG}_private"
"""Name, in Spark, of the catalog of the tables that only a session knows; see spark/tables/row_files.py."""

TABLEFLOW_CATALOG = "tableflow"
"""Name, in Spark, of the catalog of Tableflow's tables in Confluent's storage."""

_DRY_RUN = re.compile(rf"{DRY_RUN_PREFIX}(\d+)_[0-9a-f]{{12}}")
DRY_RUN_SECONDS = 86_400
"""Age in seconds at which the branch or table of a dry run is abandoned, because its process was killed."""

MAX_CHARACTERS = 255
"""Glue, Snowflake and file systems allow this number of characters in a name, including suffixes."""

MAX_TABLE_CHARACTERS = MAX_CHARACTERS - len("__v999") - len(DEAD_LETTERS)

_VERSION = re.compile(r"(.+)__v(\d{1,9})")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_topic_name(topic: str) -> bool:
    """Return whether Kafka accepts `topic` as a name (org.apache.kafka.common.internals.Topic)."""
    return bool(_TOPIC.fullmatch(topic)) and topic not in (".", "..")


def table_name(topic: str) -> str:
    """Return the table name of a topic: lower case, which Glue and Athena require, with `_` for `.` and `-`."""
    return re.sub(r"[.-]", "_", topic.lower())


def node_name(*parts: str) -> str:
    """Return a name for a Dagster op or job, which may have letters, digits and `_` only, as a unique one of its parts.

    `a.b`, `a-b` and `a_b` are different topics.
    """
    name = "__".join(parts)
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return plain if plain == name else f"{plain}__{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def family(table: str) -> tuple[str, int]:
    """Return a table's name without its version, and its version: `t__v3` → `("t", 3)`, `t` → `("t", 1)`."""
    versioned = _VERSION.fullmatch(table)
    return (versioned[1], int(versioned[2])) if versioned else (table, 1)


def new_folder(table: str) -> str:
    """Return a name for the folder of a new table, which no other table ever has."""
    suffix = f"-{uuid.uuid4()}"
    return table[: MAX_CHARACTERS - len(suffix)] + suffix


def dry_run_name(now: float) -> str:
    """Return a new name for the branch or the table of a dry run that starts at `now`, in seconds since the epoch."""
    return f"{DRY_RUN_PREFIX}{int(now)}_{uuid.uuid4().hex[:12]}"


def is_abandoned(name: str, now: float) -> bool:
    """Return whether a killed dry run left this branch or table. `now` is in seconds since the epoch."""
    dry_run = _DRY_RUN.fullmatch(name)
    return dry_run is not None and int(dry_run[1]) < now - DRY_RUN_SECONDS


def snowflake_name(name: str) -> str:
    """Return a name in upper case, to which Snowflake folds unquoted names, so that both spellings work."""
    return name.upper()


@dataclass(frozen=True)
class TableRef:
    """Namespace and name of a table that may not exist yet."""

    namespace: str
    name: str
    in_catalog: tuple[str, str] | None = field(default=None, kw_only=True)
    """Namespace and name in the catalog if Tableflow chose them; readers show the table under its own name."""
    first: str = field(default="", kw_only=True, compare=False)
    """Name of the table that this one continues after roll-overs; empty if it continues none."""
    spark_catalog: str = field(default=CATALOG, kw_only=True)
    """Name of the catalog in Spark."""

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"

    @property
    def identifier(self) -> tuple[str, str]:
        """The table's identifier in pyiceberg."""
        return self.in_catalog or (self.namespace, self.name)

    @property
    def shown(self) -> tuple[str, str]:
        """Namespace and name in readers that have names of their own."""
        return self.namespace, self.name

    @property
    def dead_letters(self) -> TableRef:
        """The table of records that could not be decoded; tables that continue each other have one together."""
        return replace(self, name=(self.first or self.name) + DEAD_LETTERS, first="")

    @property
    def first_table(self) -> TableRef:
        """The first of the tables that continue each other."""
        return replace(self, name=self.first, first="") if self.first else self

    @property
    def next_version(self) -> TableRef:
        """The table that continues this one after an incompatible schema change: `t` → `t__v2` → `t__v3`."""
        name, version = family(self.name)
        return replace(self, name=f"{name}__v{version + 1}", first=self.first or self.name)

    def spark_path(self, branch: str | None = None) -> str:
        """Return the table's, or a branch's, name in Spark (Iceberg, Branching and tagging: `branch_<name>`)."""
        parts = [self.spark_catalog, *self.identifier] + ([f"branch_{branch}"] if branch else [])
        return SPARK.identifier(*parts)
