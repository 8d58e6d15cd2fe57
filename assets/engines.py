"""Whether every engine says the same of a table: Spark, DuckDB by Glue's registration, and Snowflake."""

import time
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.shown import as_table
from assets.standing import Standing
from lakehouse import naming, sensitive
from lakehouse.config import Config
from lakehouse.errors import LakehouseError
from lakehouse.freshness import Hop
from lakehouse.lag import snapshots_behind
from lakehouse.markdown import escaped
from lakehouse.topic import Topic
from lakehouse.truth import Answer, differences, summed
from resources.catalog import published_table
from resources.snapshots import commits

if TYPE_CHECKING:
    from pyiceberg.table import Table

AGREE = "engines_agree"
ATTEMPTS = 3


def engines_check(config: Config, topic: Topic) -> Standing:
    """Rows, and the sums of columns of whole numbers and decimals, in the snapshot that each engine shows.

    Each engine reads those columns once: the cost of a check is that of a small query on the whole table.
    """

    def agree(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        r = context.resources
        current = r.catalog.current(config.namespace, topic)
        asked = {"glue": _through_glue(config, current, r), "snowflake": _in_snowflake(config, current, r)}
        # After the answers: what they show may have been published while they were asked.
        history = commits(published_table(r.catalog, config.namespace, current.table))
        said, answers = [], []
        for hop, answer in asked.items():
            behind = snapshots_behind(history, answer.snapshot_id, int(time.time() * 1000))
            shown = Hop(topic.name, hop, topic.max_lag_seconds, behind, answer.snapshot_id)
            if not shown.fresh:
                said.append(shown.said)
            if behind is not None:
                reference = _in_spark(config, current, answer, r)
                said += differences(reference, answer)
                answers.append(reference)
            answers.append(answer)
        return dg.AssetCheckResult(
            check_name=AGREE,
            asset_key=["snowflake", topic.name],
            passed=not said,
            description=escaped("; ".join(said))
            or f"{answers[-1].rows:,} rows and {len(answers[-1].sums)} sums are the same everywhere",
            metadata={"answers": _page(answers)},
        )

    said = "Spark, DuckDB through Glue, and Snowflake have the same rows and sums in the snapshot that each shows."
    return Standing(AGREE, said, frozenset({"catalog", "glue", "snowflake", "spark"}), agree)


def _in_spark(config: Config, topic: Topic, answer: Answer, systems: Any) -> Answer:
    """The reference: what the engine that wrote the table says of the snapshot that another answered for."""
    quoted = {column: naming.spark_identifier(column) for column in answer.scales}
    sums = "".join(f", SUM(CAST({quoted[column]} AS DECIMAL(38,{n})))" for column, n in answer.scales.items())
    table = f"{naming.spark_table(config.namespace, topic.table)} VERSION AS OF {answer.snapshot_id}"
    row = systems.spark.session(systems.catalog.spark_settings()).sql(f"SELECT COUNT(*){sums} FROM {table}").first()  # noqa: S608 (all quoted)
    return Answer.of("Spark", answer.snapshot_id, answer.scales, tuple(row))


def _through_glue(config: Config, topic: Topic, systems: Any) -> Answer:
    """What Glue's registration leads to: the metadata file, read by pyiceberg, summed by DuckDB.

    Raises: LakehouseError when nothing is registered.
    """
    import duckdb

    registration = systems.glue.registration(config.namespace, topic.table)
    if registration is None:
        raise LakehouseError(f"Glue has no table {config.namespace}.{topic.table}. Materialize glue/{topic.name}")
    table, snapshot_id = _served("Glue", topic, systems, registration.metadata_location)
    scales = _scales(config, topic, systems, table)
    # Without a column to sum, any: rows are counted.
    stream = table.scan(selected_fields=tuple(scales) or (table.schema().fields[0].name,)).to_arrow_batch_reader()
    sums = "".join(f', SUM("{_doubled(column)}"::DECIMAL(38,{scale}))' for column, scale in scales.items())
    with duckdb.connect() as connection:
        connection.register("stream", stream)
        row = connection.execute(f"SELECT COUNT(*){sums} FROM stream").fetchone()  # noqa: S608 (all quoted)
    assert row is not None
    return Answer.of("DuckDB through Glue", snapshot_id, scales, row)


def _in_snowflake(config: Config, topic: Topic, systems: Any) -> Answer:
    """What Snowflake shows; asked again where it was refreshed meanwhile.

    Raises: LakehouseError when there is no such table, or it never stands still.
    """
    snowflake = systems.snowflake
    parts = (snowflake.database, config.namespace, topic.table)
    name = naming.snowflake_identifier(*map(naming.snowflake_name, parts))
    for _ in range(ATTEMPTS):
        state = snowflake.table_state(config.namespace, topic.table)
        if state is None:
            raise LakehouseError(f"Snowflake shows no table of '{topic.name}'. Materialize snowflake/{topic.name}")
        table, snapshot_id = _served("Snowflake", topic, systems, state.metadata_location)
        scales = _scales(config, topic, systems, table)
        quoted = {column: naming.snowflake_identifier(naming.snowflake_name(column)) for column in scales}
        sums = "".join(f", SUM({quoted[column]}::NUMBER(38,{scale}))" for column, scale in scales.items())
        _, [row] = snowflake.query(f"SELECT COUNT(*){sums} FROM {name}")  # noqa: S608 (all quoted)
        after = snowflake.table_state(config.namespace, topic.table)
        if after and after.metadata_location == state.metadata_location:
            return Answer.of("Snowflake", snapshot_id, scales, row)
    raise LakehouseError(f"Snowflake's table of '{topic.name}' was refreshed each time it was asked. Check it again")


def _scales(config: Config, topic: Topic, systems: Any, served: "Table") -> dict[str, int]:
    """The columns to sum of a table as an engine shows it: of one row, or of two that differ by one, a sum is a value,
    so sensitive columns have none.

    Raises: ConfigError when `sensitive` names no column; LakehouseError when the table is gone.
    """
    table = published_table(systems.catalog, config.namespace, topic.table)
    if topic.sensitive and served.metadata.table_uuid != table.metadata.table_uuid:
        # Of a table that was made anew, columns are not known by their ids.
        return {}
    allowed = sensitive.shown(topic, table, served.schema())
    return {column: scale for column, scale in summed(served.schema()).items() if column in allowed}


def _served(engine: str, topic: Topic, systems: Any, metadata_location: str) -> tuple["Table", int]:
    """The table as a metadata file describes it, with the columns it had then, and its snapshot.

    Raises: LakehouseError when it has none.
    """
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(metadata_location, systems.catalog.file_io())
    if table.metadata.current_snapshot_id is None:
        raise LakehouseError(f"{engine} shows metadata of '{topic.name}' without a snapshot: {metadata_location}")
    return table, table.metadata.current_snapshot_id


def _doubled(name: str) -> str:
    """A name between double quotes (DuckDB, Keywords and identifiers)."""
    return name.replace('"', '""')


def _page(answers: list[Answer]) -> dg.TableMetadataValue:
    columns = list(dict.fromkeys(column for answer in answers for column in answer.sums))
    return as_table(
        ["engine", "snapshot", "rows", *(f"sum of {column}" for column in columns)],
        [[a.engine, a.snapshot_id, f"{a.rows:,}", *(a.sums.get(column) for column in columns)] for a in answers],
    )
