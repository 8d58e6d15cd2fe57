"""A materialization as an event of OpenLineage: what was read, what was written, which columns came from which.

Lineage viewers (Marquez, DataHub, OpenMetadata) take it; the lineage view of Dagster itself is not open source.
https://openlineage.io/docs/spec/naming names datasets, https://openlineage.io/docs/spec/facets what is said of them.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lakehouse import naming
from lakehouse.config import Config
from lakehouse.topic import Derived, Topic

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

PRODUCER = "https://pypi.org/project/lakehouse"


@dataclass(frozen=True)
class Places:
    """Where the datasets of an environment are: each a namespace of OpenLineage, or what makes one."""

    bootstrap_servers: str
    warehouse: str
    region: str
    glue_catalog_id: str
    snowflake_account: str
    snowflake_database: str


@dataclass(frozen=True)
class Materialized:
    """One materialization. `columns` maps a name to its type, `lineage` to (hop, topic, column) of what made it."""

    hop: str
    run_id: str
    job: str
    seconds: float
    columns: Mapping[str, str]
    lineage: Mapping[str, list[tuple[str, str, str]]]
    rows: int | None = None
    bytes: int | None = None


def dataset(config: Config, places: Places, hop: str, topic: Topic) -> tuple[str, str]:
    """Namespace and name of what a hop's asset stands for."""
    namespace, table = config.namespace, topic.table
    match hop:
        case "kafka":
            return f"kafka://{places.bootstrap_servers.partition(',')[0]}", topic.topic
        case "iceberg":
            warehouse = urlsplit(places.warehouse)
            path = "/".join(part for part in (warehouse.path.strip("/"), namespace, table) if part)
            return f"{warehouse.scheme}://{warehouse.netloc}", path
        case "glue":
            return f"arn:aws:glue:{places.region}:{places.glue_catalog_id}", f"table/{namespace}/{table}"
        case _:
            parts = (places.snowflake_database, namespace, table)
            return f"snowflake://{places.snowflake_account}", ".".join(map(naming.snowflake_name, parts))


def upstream(config: Config, hop: str, topic: Topic) -> tuple[str, Topic] | None:
    """The hop and topic that a materialization reads; None where it begins."""
    match hop, topic.source:
        case "kafka", Derived(from_topic=source):
            return "iceberg", config.topic(source)
        case "kafka", _:
            return None
        case "iceberg", _:
            return "kafka", topic
        case _:
            return "iceberg", topic


def completed(config: Config, places: Places, topic: Topic, done: Materialized) -> RunEvent:
    """The event of one materialization. Sent twice it is the same event: the run's id is made of what it names."""
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import job_type_job, output_statistics_output_dataset, parent_run

    job = f"{done.hop}/{topic.name}"
    began = parent_run.ParentRunFacet(
        run=parent_run.Run(done.run_id), job=parent_run.Job(config.namespace, done.job), producer=PRODUCER
    )
    kind = job_type_job.JobTypeJobFacet("BATCH", "DAGSTER", "ASSET", producer=PRODUCER)
    written = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        done.rows, done.bytes, producer=PRODUCER
    )
    source = upstream(config, done.hop, topic)
    return RunEvent(
        eventType=RunState.COMPLETE,
        eventTime=datetime.fromtimestamp(done.seconds, UTC).isoformat(),
        run=Run(str(uuid.uuid5(uuid.UUID(done.run_id), job)), {"parent": began}),
        job=Job(config.namespace, job, {"jobType": kind}),
        inputs=[InputDataset(*dataset(config, places, *source))] if source else [],
        outputs=[
            OutputDataset(
                *dataset(config, places, done.hop, topic),
                facets=_facets(config, places, done),
                outputFacets={"outputStatistics": written} if done.rows is not None else {},
            )
        ],
        producer=PRODUCER,
    )


def _facets(config: Config, places: Places, done: Materialized) -> dict[str, Any]:
    from openlineage.client.facet_v2 import column_lineage_dataset as lineage
    from openlineage.client.facet_v2 import schema_dataset

    facets: dict[str, Any] = {}
    if done.columns:
        fields = [schema_dataset.SchemaDatasetFacetFields(name, kind) for name, kind in done.columns.items()]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields, producer=PRODUCER)
    if done.lineage:
        made = {
            name: lineage.Fields(
                [
                    lineage.InputField(*dataset(config, places, hop, config.topic(topic)), column)
                    for hop, topic, column in columns
                ]
            )
            for name, columns in done.lineage.items()
        }
        facets["columnLineage"] = lineage.ColumnLineageDatasetFacet(made, producer=PRODUCER)
    return facets
