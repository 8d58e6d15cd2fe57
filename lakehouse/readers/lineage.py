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

from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.readers import reader_of

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

PRODUCER = "https://pypi.org/project/lakehouse"


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


def dataset(config: Config, hop: str, topic: Topic, clients: Any) -> tuple[str, str]:
    """Return the namespace and name of the dataset that a hop's asset represents.

    Args:
        config: The configuration.
        hop: The first part of the asset's key.
        topic: The topic of the asset.
        clients: Has the resources `kafka`, `catalog` and those of the readers as attributes.

    Raises:
        KeyError: No hop has that name.
    """
    namespace = config.namespace
    if hop == "kafka":
        return f"kafka://{clients.kafka.servers.partition(',')[0]}", topic.topic
    if hop == "iceberg":
        warehouse = urlsplit(clients.catalog.warehouse)
        path = "/".join(part for part in (warehouse.path.strip("/"), namespace, topic.table) if part)
        return f"{warehouse.scheme}://{warehouse.netloc}", path
    if reader := reader_of(hop):
        return reader.dataset(namespace, topic, clients)
    raise KeyError(hop)


def upstream(config: Config, hop: str, topic: Topic) -> tuple[str, Topic] | None:
    """Return the hop and topic that a materialization reads; None where the data begins."""
    if reader := reader_of(hop):
        return reader.upstream, topic
    if hop == "iceberg":
        return "kafka", topic
    if topic.source.upstream:
        return "iceberg", config.topic(topic.source.upstream)
    return None


def completed(config: Config, topic: Topic, done: Materialized, clients: Any) -> RunEvent:
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
        inputs=[InputDataset(*dataset(config, *source, clients))] if source else [],
        outputs=[
            OutputDataset(
                *dataset(config, done.hop, topic, clients),
                facets=_facets(config, done, clients),
                outputFacets={"outputStatistics": written} if done.rows is not None else {},
            )
        ],
        producer=PRODUCER,
    )


def _facets(config: Config, done: Materialized, clients: Any) -> dict[str, Any]:
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
                    lineage.InputField(*dataset(config, hop, config.topic(topic), clients), column)
                    for hop, topic, column in columns
                ]
            )
            for name, columns in done.lineage.items()
        }
        facets["columnLineage"] = lineage.ColumnLineageDatasetFacet(made, producer=PRODUCER)
    return facets
