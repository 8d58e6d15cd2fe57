"""One rule from a Kafka topic to the names of everything made from it.

Kafka names are wider than table names (letters, digits, `.`, `_`, `-`, up to 249 characters, case-sensitive), so the
rule folds them; lakehouse.config.table_names refuses two topics that fold to the same name.
"""

from __future__ import annotations

import re
import uuid

from lakehouse.core.sql import SPARK

CATALOG = "lake"
"""The name of the Iceberg catalog, the same in Spark and in pyiceberg (a SQL catalog stores it with every table)."""

OFFSETS_TAG = "lakehouse-offsets"
"""The Iceberg tag on the newest ingested snapshot: snapshot expiry never removes a tagged snapshot."""

STAGING_PREFIX = "ingest_"
"""Branches that hold a batch between its write and its publication start with this."""

_REHEARSAL = re.compile(r"rehearsal_(\d+)_[0-9a-f]{12}")
REHEARSAL_SECONDS = 86_400
"""After so long, whoever made a branch for a rehearsal was killed before it dropped the branch."""

DEAD_LETTERS = "__dead_letters"
"""Appended to a table's name: the table that keeps what could not be decoded."""

LONGEST_TABLE = 255 - len("__v999") - len(DEAD_LETTERS)
"""Glue, Snowflake and file systems take 255 characters, with whatever is appended."""

_VERSION = re.compile(r"(.+)__v(\d{1,9})")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_topic_name(topic: str) -> bool:
    """Whether Kafka would accept `topic` as a name (org.apache.kafka.common.internals.Topic)."""
    return bool(_TOPIC.fullmatch(topic)) and topic not in (".", "..")


def table_name(topic: str) -> str:
    """The table of a topic: lower case, `.` and `-` become `_`. Glue and Athena know lower case only."""
    return re.sub(r"[.-]", "_", topic.lower())


def dead_letter_table(table: str) -> str:
    """The dead-letter table that belongs to `table`."""
    return table + DEAD_LETTERS


def family(table: str) -> tuple[str, int]:
    """A table's name without its version, and its version: `t__v3` → `("t", 3)`, and 1 where the name has none."""
    found = _VERSION.fullmatch(table)
    return (found[1], int(found[2])) if found else (table, 1)


def next_version(table: str) -> str:
    """The table beside `table` that goes on with a schema it cannot take: `t` → `t__v2` → `t__v3`."""
    name, version = family(table)
    return f"{name}__v{version + 1}"


def rehearsal_branch(now: float) -> str:
    """A branch for a rehearsal that begins now, in seconds since the epoch."""
    return f"rehearsal_{int(now)}_{uuid.uuid4().hex[:12]}"


def is_abandoned(branch: str, now: float) -> bool:
    """Whether a branch is of a rehearsal that was killed. Parameters: `now` in seconds since the epoch."""
    found = _REHEARSAL.fullmatch(branch)
    return found is not None and int(found[1]) < now - REHEARSAL_SECONDS


def spark_table(namespace: str, table: str, *, branch: str | None = None) -> str:
    """A table, or one branch of it, as Spark addresses it (Iceberg, Branching and tagging: `branch_<name>`)."""
    parts = [CATALOG, namespace, table] + ([f"branch_{branch}"] if branch else [])
    return SPARK.identifier(*parts)


def snowflake_name(name: str) -> str:
    """Snowflake folds unquoted names to upper case; the project's objects are upper case, so both spellings work."""
    return name.upper()
