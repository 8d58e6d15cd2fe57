"""Whether every engine says the same of a table: Spark, DuckDB by Glue's registration, and Snowflake."""

import time
from typing import Any

import dagster as dg

from assets.standing import Standing
from lakehouse import naming
from lakehouse.config import Config, Topic
from lakehouse.errors import LakehouseError
from lakehouse.freshness import Hop
from lakehouse.lag import snapshots_behind
from lakehouse.ledger_page import markdown
from lakehouse.truth import Answer, differences, summed
from resources.catalog import Catalog, commits, published_table, snapshot_at
from resources.spark import Spark

AGREE = "engines_agree"


def engines_check(config: Config, topic: Topic) -> Standing:
    """Rows, and the sums of columns of whole numbers and decimals, in the snapshot that each engine shows.

    Each engine reads those columns once: the cost of a check is that of a small query on the whole table.
    """

    def agree(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        r = context.resources
        current = r.catalog.current(config.namespace, topic)
        table = published_table(r.catalog, config.namespace, current.table)
        scales, history, now_ms = summed(table.schema()), commits(table), int(time.time() * 1000)
        said, answers = [], []
        for hop, ask in (("glue", _through_glue), ("snowflake", _in_snowflake)):
            answer = ask(config, current, scales, r)
            shown = Hop(topic.name, hop, topic.max_lag_seconds, snapshots_behind(history, answer.snapshot_id, now_ms))
            if not shown.fresh:
                said.append(shown.said)
            if shown.behind is not None:
                reference = _in_spark(config, current, scales, answer.snapshot_id, r.catalog, r.spark)
                said += differences(reference, answer)
                answers.append(reference)
            answers.append(answer)
        return dg.AssetCheckResult(
            check_name=AGREE,
            asset_key=["snowflake", topic.name],
            passed=not said,
            description="; ".join(said) or f"{answers[-1].rows:,} rows and {len(scales)} sums are the same everywhere",
            metadata={"answers": dg.MarkdownMetadataValue(_page(answers))},
        )

    said = "Spark, DuckDB through Glue, and Snowflake have the same rows and sums in the snapshot that each shows."
    return Standing(AGREE, said, frozenset({"catalog", "glue", "snowflake", "spark"}), agree)


def _in_spark(
    config: Config, topic: Topic, scales: dict[str, int], snapshot_id: int, catalog: Catalog, spark: Spark
) -> Answer:
    """The reference: the table's own catalog, and the engine that wrote it."""
    quoted = {column: naming.spark_identifier(column) for column in scales}
    sums = "".join(f", SUM(CAST({quoted[column]} AS DECIMAL(38,{scale})))" for column, scale in scales.items())
    table = f"{naming.spark_table(config.namespace, topic.table)} VERSION AS OF {snapshot_id}"
    session = spark.session(catalog.spark_settings())
    row = session.sql(f"SELECT COUNT(*){sums} FROM {table}").first()
    assert row is not None
    return Answer.of("Spark", snapshot_id, list(scales), tuple(row))


def _through_glue(config: Config, topic: Topic, scales: dict[str, int], systems: Any) -> Answer:
    """What Glue's registration leads to: the metadata file, read by pyiceberg as a stream, summed by DuckDB.

    Raises: LakehouseError when nothing is registered.
    """
    import duckdb
    from pyiceberg.table import StaticTable

    registration = systems.glue.registration(config.namespace, topic.table)
    if registration is None:
        raise LakehouseError(f"Glue has no table {config.namespace}.{topic.table}. Materialize glue/{topic.name}")
    table = StaticTable.from_metadata(registration.metadata_location, systems.catalog.file_io())
    # Without a column to sum, any: rows are counted.
    columns = tuple(scales) or (table.schema().fields[0].name,)
    stream = table.scan(selected_fields=columns).to_arrow_batch_reader()
    sums = "".join(f', SUM("{_doubled(column)}"::DECIMAL(38,{scale}))' for column, scale in scales.items())
    with duckdb.connect() as connection:
        connection.register("stream", stream)
        row = connection.execute(f"SELECT COUNT(*){sums} FROM stream").fetchone()
    assert row is not None and table.metadata.current_snapshot_id is not None
    return Answer.of("DuckDB through Glue", table.metadata.current_snapshot_id, list(scales), row)


def _in_snowflake(config: Config, topic: Topic, scales: dict[str, int], systems: Any) -> Answer:
    """Raises: LakehouseError when there is no such table."""
    snowflake = systems.snowflake
    state = snowflake.table_state(config.namespace, topic.table)
    if state is None:
        raise LakehouseError(f"Snowflake shows no table of '{topic.name}'. Materialize snowflake/{topic.name}")
    name = naming.snowflake_identifier(
        *(naming.snowflake_name(part) for part in (snowflake.database, config.namespace, topic.table))
    )
    quoted = {column: naming.snowflake_identifier(naming.snowflake_name(column)) for column in scales}
    sums = "".join(f", SUM({quoted[column]}::NUMBER(38,{scale}))" for column, scale in scales.items())
    _, [row] = snowflake.query(f"SELECT COUNT(*){sums} FROM {name}")
    snapshot_id = snapshot_at(systems.catalog, state.metadata_location)
    assert snapshot_id is not None
    return Answer.of("Snowflake", snapshot_id, list(scales), row)


def _doubled(name: str) -> str:
    """A name between double quotes (DuckDB, Keywords and identifiers)."""
    return name.replace('"', '""')


def _page(answers: list[Answer]) -> str:
    columns = ["engine", "snapshot", "rows", *answers[0].sums]
    return markdown(
        columns, [[a.engine, str(a.snapshot_id), f"{a.rows:,}", *map(str, a.sums.values())] for a in answers]
    )
