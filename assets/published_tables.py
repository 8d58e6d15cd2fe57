"""The IO manager with which assets of users read published tables, at the snapshot of the input's materialization."""

from __future__ import annotations

import dagster as dg

from lakehouse.config.model import Config, Route, Topic
from lakehouse.core.errors import ConfigError, LakehouseError
from lakehouse.pipeline.table_location import catalog_of, table_of, table_resources
from resources.protocols import Resources

KEY = "published_tables"
"""The key of the IO manager, which an input names as `input_manager_key`."""


def published_tables(config: Config) -> dg.IOManagerDefinition:
    """Return the IO manager of a configuration."""
    written_by_others = (table_resources(config, topic) for topic in config.topics.values())
    needs = {"catalog", "spark"}.union(*written_by_others)

    @dg.io_manager(required_resource_keys=needs, description=PublishedTables.__doc__)
    def manager(context: dg.InitResourceContext) -> PublishedTables:
        return PublishedTables(config, context.resources)

    return manager


class PublishedTables(dg.IOManager):
    """Reads the table of `<topic>/iceberg`, or of the topic's asset of a reader, in the form of the annotation.

    The forms are `pyarrow.Table`, `pandas.DataFrame`, `polars.DataFrame`, `polars.LazyFrame`, `duckdb.DuckDBPyRelation`
    and `pyspark.sql.DataFrame`. The rows are those of the snapshot that the newest materialization of the input names.
    It writes nothing.
    """

    def __init__(self, config: Config, resources: Resources) -> None:
        self._config, self._resources = config, resources

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        raise LakehouseError(
            f"{context.asset_key.to_user_string()} returned a value for the IO manager `{KEY}`, which only reads",
            "Nothing was written",
            "Give the asset another `io_manager_key`: a table of a topic is written from its topic only",
        )

    def load_input(self, context: dg.InputContext) -> object:
        from lakehouse.query.table_snapshot import TableSnapshot

        name, asset = _form_of(context), context.asset_key.to_user_string()
        topic = self._topic_of(context)
        catalog = catalog_of(topic, self._resources)
        chain = catalog.chain(table_of(self._config, topic, self._resources))
        with self._resources.catalog.translate_errors():
            newest_ref, newest = chain.require_published()
            snapshot_id = _named_snapshot(context) or newest.metadata.current_snapshot_id
            assert snapshot_id is not None
            tables = [(ref, table) for ref, table in chain.existing if table.snapshot_by_id(snapshot_id)]
            if not tables:
                raise LakehouseError(
                    f"Snapshot {snapshot_id} of {newest_ref}, which the newest materialization of {asset} has, expired",
                    "Nothing was read",
                    f"Materialize {asset}, then this asset",
                )
            snapshot = TableSnapshot(*tables[-1], snapshot_id, self._resources.spark, catalog.spark_settings())
            rows = getattr(snapshot, FORMS[name])()
        context.add_input_metadata({"table": str(tables[-1][0]), "snapshot_id": str(snapshot_id)})
        return rows

    def _topic_of(self, context: dg.InputContext) -> Topic:
        asset, name = context.asset_key.to_user_string(), context.asset_key.path[0]
        entry = self._config.topics.get(name) or self._config.routes.get(name)
        if entry is None:
            raise ConfigError(
                f"{asset} is no table of a topic", "Nothing was read", f"Remove `{KEY}` from the input of this asset"
            )
        if not isinstance(entry, Route):
            return entry
        keys = list(context.asset_partition_keys) if context.has_asset_partitions else []
        topic = entry.topic_named(keys[0]) if len(keys) == 1 else None
        if topic is None:
            raise ConfigError(
                f"{asset} has one partition for each topic, and this input selects {len(keys)} of them",
                "Nothing was read",
                "Give the asset the same partitions, or the input a partition mapping to one of them",
            )
        return topic


FORMS = {
    "pyarrow.Table": "arrow",
    "pandas.DataFrame": "pandas",
    "polars.DataFrame": "polars",
    "polars.LazyFrame": "lazy_polars",
    "duckdb.DuckDBPyRelation": "duckdb",
    "pyspark.DataFrame": "spark",
}
"""Methods of `TableSnapshot` by the package and name of an annotation, which is not imported to compare it."""


def _form_of(context: dg.InputContext) -> str:
    """Return the name in FORMS of an input's annotation."""
    type_ = context.dagster_type.typing_type
    package = getattr(type_, "__module__", "").partition(".")[0].lstrip("_")
    name = f"{package}.{getattr(type_, '__qualname__', type_)}"
    if name not in FORMS:
        raise ConfigError(
            f"Input '{context.name}' is annotated as {name}, in which no table can be read",
            "Nothing was read",
            f"Annotate it as one of {', '.join(FORMS)}",
        )
    return name


def _named_snapshot(context: dg.InputContext) -> int | None:
    """Return the snapshot that the newest materialization of an input names, as those of all assets of tables do."""
    partitions = list(context.asset_partition_keys) if context.has_asset_partitions else None
    newest = context.step_context.instance.fetch_materializations(
        dg.AssetRecordsFilter(context.asset_key, asset_partitions=partitions), limit=1
    ).records
    materialization = newest[0].asset_materialization if newest else None
    version = (materialization.tags or {}).get("dagster/data_version", "") if materialization else ""
    return int(version) if version.isdigit() else None
