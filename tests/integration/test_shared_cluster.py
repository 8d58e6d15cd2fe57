"""Two environments with the same entries on one Kafka cluster, each with a catalog of its own."""

from dataclasses import replace

import pytest

from lakehouse.core.errors import UnclearState
from lakehouse.pipeline.bookmarks import set_derived_bookmark
from lakehouse.pipeline.dead_letters.dead_letter_topic import publish_dead_letters
from lakehouse.pipeline.derivation.derivation import derive
from lakehouse.pipeline.ingestion import ingest
from resources.iceberg.catalog import Catalog
from tests.support.topics import Stream, consume

FLAGS = {"type": "derived", "transform": "spark.flags:flagged"}


@pytest.fixture(scope="module")
def other_catalog(stack, resources):
    """A catalog in the stack's folder, because servers may use no other one. Both have one warehouse."""
    folder = stack.path / "other-environment"
    folder.mkdir(mode=0o700)
    settings = {name: getattr(resources.catalog, name) for name in Catalog.model_fields}
    return Catalog(**settings | {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"})


def test_second_environment_and_moved_table_share_a_cluster(resources, other_catalog):
    trades = Stream(resources, partitions=1)
    trades.topic = trades.topic.model_copy(update={"dead_letter_topic": f"{trades.name}.letters"})
    flags = Stream(resources, partitions=1, settings={"key": [], "source": FLAGS | {"from": trades.name}})
    config = trades.config.model_copy(update={"topics": {trades.name: trades.topic, flags.name: flags.topic}})
    first = trades.systems
    second = replace(first, catalog=other_catalog, engines=first.engines.with_own_session())

    def run(clients):
        list(ingest(trades.namespace, trades.topic, clients))
        return derive(config, flags.topic, clients).messages

    trades.produce_trades(range(10))
    trades.produce([{"value": b"bad"}])
    assert run(first) == 10
    assert publish_dead_letters(trades.namespace, trades.topic, first) == 1
    with pytest.raises(UnclearState, match="messages of another table"):
        run(second)
    with pytest.raises(UnclearState, match="messages of another table"):
        publish_dead_letters(trades.namespace, trades.topic, second)
    project = trades.topic.model_copy(update={"dead_letter_topic": f"{trades.name}.other"})
    assert publish_dead_letters(trades.namespace, project, second) == 1
    trades.produce_trades(range(10, 12))
    assert run(first) == 2
    assert len(consume(flags.name, 1)) == 12

    # The first environment's table moves to the other catalog.
    name = (trades.namespace, trades.topic.table)
    for table in (name, (name[0], f"{name[1]}__dead_letters")):
        other_catalog.iceberg().drop_table(table)
        other_catalog.iceberg().register_table(table, first.catalog.iceberg().load_table(table).metadata_location)
    trades.produce_trades(range(12, 15))
    assert run(second) == 3
    assert publish_dead_letters(trades.namespace, trades.topic, second) == 0
    assert len(consume(flags.name, 1)) == 15
    assert len(consume(f"{trades.name}.letters", trades.topic.partitions)) == 1
    set_derived_bookmark(config, flags.topic, second, "latest", "test")
    assert run(second) == 0
