"""Trial of a transform: its result for no rows of the source's table, as messages of the derived topic."""

from lakehouse.config.model import Config, Topic
from lakehouse.config.sources import Derived
from lakehouse.core.errors import TransformFailed
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.commits.audit import CheckResult
from lakehouse.pipeline.derivation.source_table import newest_source_table
from lakehouse.pipeline.derivation.transforms import transform, transform_errors
from lakehouse.pipeline.engine_values import FirstRows
from lakehouse.pipeline.table_location import catalog_of, table_of

TRANSFORM = "transform"
"""Name of the check that the trial reports."""


def try_transform(config: Config, topic: Topic, clients: Clients) -> CheckResult:
    """Return whether a transform has a result that becomes messages, and produce none.

    Args:
        config: The configuration.
        topic: The derived topic.
        clients: Clients of the systems.

    Raises:
        ConfigError: The transform cannot be imported.
        SchemaError: A column of the result has no Avro type.
        Unreachable: A system does not answer.
    """
    assert isinstance(topic.source, Derived)
    compute, source = transform(config, topic), config.topic(topic.source.from_topic)
    chain = catalog_of(source, clients).chain(table_of(config, source, clients))
    table = newest_source_table(source, chain, clients)
    if table is None:
        return CheckResult(TRANSFORM, True, f"not run, because the table of '{source.name}' has no rows")
    file = topic.source.value_schema_file
    try:
        with transform_errors(config, topic):
            derived = table.engine.derive(FirstRows(table.rows, 0), compute)
            schema = config.text(file) if file else derived.avro_schema(f"{topic.name}_value")
            derived.messages(None, (0, schema))
    except TransformFailed as error:
        return CheckResult(TRANSFORM, False, str(error))
    return CheckResult(TRANSFORM, True, "its result for no rows has the columns of the messages")
