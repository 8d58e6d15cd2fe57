"""Convert a materialization to an OpenLineage event: inputs, outputs, and the lineage of columns.

Lineage viewers such as Marquez, DataHub and OpenMetadata accept these events; Dagster's own column lineage view is not
open source. https://openlineage.io/docs/spec/naming specifies the names of datasets,
https://openlineage.io/docs/spec/facets their metadata.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakehouse.config.model import Config, Topic
from lakehouse.pipeline.table_location import table_of
from lakehouse.readers import reader_of
from resources.protocols import Resources

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

PRODUCER = "https://pypi.org/project/lakehouse"


@dataclass(frozen=True)
class Materialization:
    """One materialization."""

    stage: str
    """The first part of the asset's key."""
    run_id: str
    job: str
    seconds: float
    """The time of the materialization in seconds since the epoch."""
    columns: Mapping[str, str]
    """The type of each column by name."""
    lineage: Mapping[str, list[tuple[str, str, str]]]
    """For each column, the (stage, topic, column) that it is computed from."""
    rows: int | None = None
    """The number of rows that were written; None if unknown."""


def dataset(config: Config, stage: str, topic: Topic, resources: Resources) -> tuple[str, str]:
    """Return the namespace and name of the dataset that a stage's asset represents.

    Args:
        resources: Include `kafka`, `catalog` and those of the readers.
    """
    ref = table_of(config, topic, resources)
    if stage == "kafka":
        return f"kafka://{resources.kafka.servers.partition(',')[0]}", topic.topic
    if stage == "iceberg":
        return resources.catalog.dataset(ref)
    if reader := reader_of(stage):
        return reader.dataset(ref, resources)
    raise KeyError(stage)


def upstream(config: Config, stage: str, topic: Topic) -> tuple[str, Topic] | None:
    """Return the stage and topic that a materialization reads; None for the first stage."""
    if reader := reader_of(stage):
        return reader.upstream, topic
    if stage == "iceberg":
        return "kafka", topic
    if topic.source.upstream:
        return "iceberg", config.topic(topic.source.upstream)
    return None


def completed(config: Config, topic: Topic, materialized: Materialization, resources: Resources) -> RunEvent:
    """Return the event of one materialization.

    Its run id is derived from its contents, so sending it twice has the same effect as sending it once.
    """
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import job_type_job, output_statistics_output_dataset, parent_run

    job = f"{topic.name}/{materialized.stage}"
    parent = parent_run.ParentRunFacet(
        run=parent_run.Run(materialized.run_id),
        job=parent_run.Job(config.namespace, materialized.job),
        producer=PRODUCER,
    )
    kind = job_type_job.JobTypeJobFacet("BATCH", "DAGSTER", "ASSET", producer=PRODUCER)
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        materialized.rows, producer=PRODUCER
    )
    source = upstream(config, materialized.stage, topic)
    return RunEvent(
        eventType=RunState.COMPLETE,
        eventTime=datetime.fromtimestamp(materialized.seconds, UTC).isoformat(),
        run=Run(str(uuid.uuid5(uuid.UUID(materialized.run_id), job)), {"parent": parent}),
        job=Job(config.namespace, job, {"jobType": kind}),
        inputs=[InputDataset(*dataset(config, *source, resources))] if source else [],
        outputs=[
            OutputDataset(
                *dataset(config, materialized.stage, topic, resources),
                facets=_facets(config, materialized, resources),
                outputFacets={"outputStatistics": statistics} if materialized.rows is not None else {},
            )
        ],
        producer=PRODUCER,
    )


def _facets(config: Config, materialized: Materialization, resources: Resources) -> dict[str, Any]:
    from openlineage.client.facet_v2 import column_lineage_dataset as lineage
    from openlineage.client.facet_v2 import schema_dataset

    facets: dict[str, Any] = {}
    if materialized.columns:
        fields = [schema_dataset.SchemaDatasetFacetFields(name, kind) for name, kind in materialized.columns.items()]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields, producer=PRODUCER)
    if materialized.lineage:
        inputs = {
            name: lineage.Fields(
                [
                    lineage.InputField(*dataset(config, stage, config.topic(topic), resources), column)
                    for stage, topic, column in columns
                ]
            )
            for name, columns in materialized.lineage.items()
        }
        facets["columnLineage"] = lineage.ColumnLineageDatasetFacet(inputs, producer=PRODUCER)
    return facets
