"""The check that Spark and the engine of every reader find the same in a table."""

import time
from typing import Any

import dagster as dg

from assets.shown import as_table
from assets.standing import Standing
from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core import naming
from lakehouse.core.lag import snapshots_behind
from lakehouse.core.markdown import escaped
from lakehouse.core.sql import SPARK
from lakehouse.readers import configured
from lakehouse.readers.freshness import Hop
from lakehouse.readers.truth import Answer, differences
from resources.catalog import published_table
from resources.snapshots import commits

AGREE = "engines_agree"


def engines_check(config: Config, topic: Topic) -> Standing:
    """Rows, and the sums of columns of whole numbers and decimals, in the snapshot that each reader exposes.

    Each engine reads those columns once: the cost of a check is that of a small query on the whole table.
    """
    readers = configured(config)

    def agree(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        clients = context.resources
        current, _ = clients.catalog.resolve_table(config.namespace, topic)
        asked = {
            reader.name: reader.answer(config.namespace, current, clients)
            for reader in readers
            # Whether an optional reader has the table yet, its own asset's checks report.
            if not reader.is_optional or reader.current(config.namespace, current, clients)
        }
        # After the answers: what they show may have been published while they were asked.
        history = commits(published_table(clients.catalog, config.namespace, current.table))
        problems, answers = [], []
        for hop, answer in asked.items():
            behind = snapshots_behind(history, answer.snapshot_id, int(time.time() * 1000))
            shown = Hop(topic.name, hop, topic.max_lag_seconds, behind, answer.snapshot_id)
            if not shown.fresh:
                problems.append(shown.said)
            if behind is not None:
                reference = _in_spark(config, current, answer, clients)
                problems += differences(reference, answer)
                answers.append(reference)
            answers.append(answer)
        return dg.AssetCheckResult(
            check_name=AGREE,
            asset_key=[asset_of(config), topic.name],
            passed=not problems,
            description=escaped("; ".join(problems))
            or f"{answers[-1].rows:,} rows and {len(answers[-1].sums)} sums are the same everywhere",
            metadata={"answers": _page(answers)},
        )

    engines = ", ".join(reader.engine for reader in readers)
    description = (
        f"Spark and the readers ({engines}) return the same row counts and sums for the snapshot each exposes."
    )
    return Standing(
        AGREE, description, frozenset({"catalog", "spark", *(reader.resource for reader in readers)}), agree
    )


def asset_of(config: Config) -> str:
    """Return the first part of the key of the asset that has the check: of the last reader that is not optional."""
    return [reader.name for reader in configured(config) if not reader.is_optional][-1]


def _in_spark(config: Config, topic: Topic, answer: Answer, systems: Any) -> Answer:
    """The reference: what the engine that wrote the table says of the snapshot that another answered for."""
    quoted = {column: SPARK.identifier(column) for column in answer.scales}
    sums = "".join(f", SUM(CAST({quoted[column]} AS DECIMAL(38,{n})))" for column, n in answer.scales.items())
    table = f"{naming.spark_table(config.namespace, topic.table)} VERSION AS OF {answer.snapshot_id}"
    row = systems.spark.session(systems.catalog.spark_settings()).sql(f"SELECT COUNT(*){sums} FROM {table}").first()  # noqa: S608 (all quoted)
    return Answer.of("Spark", answer.snapshot_id, answer.scales, tuple(row))


def _page(answers: list[Answer]) -> dg.TableMetadataValue:
    columns = list(dict.fromkeys(column for answer in answers for column in answer.sums))
    return as_table(
        ["engine", "snapshot", "rows", *(f"sum of {column}" for column in columns)],
        [[a.engine, a.snapshot_id, f"{a.rows:,}", *(a.sums.get(column) for column in columns)] for a in answers],
    )
