"""The tables of a topic that rolled over: which one receives records, is shown to readers, or has a position."""

import pyarrow as pa
import pytest

from lakehouse.config.model import Topic
from lakehouse.core.errors import LakehouseError, UnclearState
from lakehouse.core.offsets.batch import Batch
from lakehouse.core.table_protocol import SUCCESSOR, TOKEN
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.dead_letters import letters

ORDERS = TableRef("trading", "orders")


def create(catalog, name, successor=None):
    properties = {SUCCESSOR: successor} if successor else {}
    return catalog.iceberg().create_table(("trading", name), pa.schema([("a", pa.int64())]), properties=properties)


def create_with_batch(catalog, name, start, end, *, successor=None, topic_id="t1"):
    table = create(catalog, name, successor)
    batch = Batch("c1", "orders", topic_id, {0: start}, {0: end})
    table.append(pa.table({"a": [1]}), snapshot_properties={TOKEN: batch.to_json()})
    return table


def test_newest_of_missing_table_is_its_name(catalog):
    assert catalog.chain(ORDERS).newest == (ORDERS, None)


def test_newest_without_successor(catalog):
    created = create(catalog, "orders")

    ref, table = catalog.chain(ORDERS).newest

    assert ref == ORDERS and table.metadata.table_uuid == created.metadata.table_uuid


def test_newest_of_successors_is_the_last(catalog):
    create(catalog, "orders", successor="orders__v2")
    create(catalog, "orders__v2", successor="orders__v3")
    last = create(catalog, "orders__v3")

    ref, table = catalog.chain(ORDERS).newest

    assert ref.name == "orders__v3" and table.metadata.table_uuid == last.metadata.table_uuid


def test_newest_of_missing_successor_is_its_name(catalog):
    create(catalog, "orders", successor="orders__v2")

    ref, table = catalog.chain(ORDERS).newest

    assert (ref.name, table) == ("orders__v2", None)


def test_successors_share_dead_letters(catalog):
    create(catalog, "orders", successor="orders__v2")
    create(catalog, "orders__v2", successor="orders__v3")

    ref, _ = catalog.chain(ORDERS).newest

    assert ref.dead_letters == ORDERS.dead_letters == ORDERS.next_version.dead_letters
    assert TableRef("trading", "orders__v2").dead_letters.name == "orders__v2__dead_letters"


def test_chain_of_earlier_release_is_refused(catalog):
    table = pa.schema([("a", pa.int64())])
    catalog.iceberg().create_table(("trading", "orders"), table, properties={"lakehouse.continued-in": "orders__v2"})

    with pytest.raises(UnclearState, match="was continued in 'orders__v2' by an earlier release.*Nothing was changed"):
        catalog.chain(ORDERS)


def test_dead_letters_of_earlier_release_are_refused(catalog):
    columns = pa.schema([("error_reason", pa.string())])
    catalog.iceberg().create_table(("trading", "orders__dead_letters"), columns)

    refusal = "created by an older release.* id of topic 'orders'.*Nothing was changed.*`lakehouse replay orders`"
    with pytest.raises(UnclearState, match=refusal):
        letters.load(catalog, Topic(name="orders"), ORDERS.dead_letters)


def test_chain_of_tables_that_continue_each_other_is_refused(catalog):
    create(catalog, "orders", successor="orders__v2")
    create(catalog, "orders__v2", successor="orders")

    with pytest.raises(UnclearState, match="trading.orders__v2 names trading.orders, .*remove .*lakehouse.successor"):
        catalog.chain(ORDERS)


def test_published_before_first_batch_of_successor(catalog):
    create_with_batch(catalog, "orders", 0, 5, successor="orders__v2")
    create(catalog, "orders__v2")

    chain = catalog.chain(ORDERS)

    assert chain.published[0] == ORDERS
    assert chain.require_published()[0] == ORDERS
    assert chain.newest[0].name == "orders__v2"


def test_require_published_without_snapshot(catalog):
    create(catalog, "orders", successor="orders__v2")

    with pytest.raises(LakehouseError, match="trading.orders has no published snapshot. Materialize orders/iceberg"):
        catalog.chain(ORDERS).require_published()


def test_last_batch_and_begin_before_first_batch_after_roll_over(catalog):
    create_with_batch(catalog, "orders", 0, 5, successor="orders__v2")

    chain = catalog.chain(ORDERS)

    assert chain.last_batch.end == {0: 5}
    assert chain.begin == {0: 5}


def test_begin_of_table_that_continues_others(catalog):
    create_with_batch(catalog, "orders", 0, 5, successor="orders__v2")
    create_with_batch(catalog, "orders__v2", 5, 9)

    chain = catalog.chain(ORDERS)

    assert (chain.last_batch.end, chain.begin) == ({0: 9}, {0: 5})


def test_begin_of_recreated_topic_has_no_offsets(catalog):
    create_with_batch(catalog, "orders", 0, 5, successor="orders__v2")
    create_with_batch(catalog, "orders__v2", 0, 2, topic_id="t2")

    chain = catalog.chain(ORDERS)

    assert (chain.last_batch.topic_id, chain.begin) == ("t2", {})


@pytest.mark.parametrize(("offset", "name"), [(0, "orders"), (4, "orders"), (5, "orders__v2"), (9, "orders__v2")])
def test_table_at_position(catalog, offset, name):
    create_with_batch(catalog, "orders", 0, 5, successor="orders__v2")
    create_with_batch(catalog, "orders__v2", 5, 9)

    ref, _ = catalog.chain(ORDERS).at("t1", {0: offset})

    assert ref.name == name


def test_table_at_position_of_recreated_topic(catalog):
    create_with_batch(catalog, "orders", 0, 5, successor="orders__v2")

    ref, _ = catalog.chain(ORDERS).at("t2", {0: 0})

    assert ref.name == "orders"


def test_chains_since_a_table(catalog):
    first = create_with_batch(catalog, "orders", 0, 5, successor="orders__v2")
    second = create_with_batch(catalog, "orders__v2", 5, 9, successor="orders__v3")
    third = create(catalog, "orders__v3")
    chain = catalog.chain(ORDERS)
    names = {
        uuid: [(part.newest[0].name, len(part.closed)) for part in chain.since(uuid)]
        for uuid in (None, *(str(table.metadata.table_uuid) for table in (first, second, third)))
    }

    assert list(names.values()) == [
        [("orders", 0), ("orders__v2", 1), ("orders__v3", 2)],
        [("orders", 0), ("orders__v2", 1), ("orders__v3", 2)],
        [("orders__v2", 1), ("orders__v3", 2)],
        [("orders__v3", 2)],
    ]
