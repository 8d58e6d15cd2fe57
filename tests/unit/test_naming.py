"""Names that are made from a topic's."""

import pytest

from lakehouse.core import naming


@pytest.mark.parametrize(("topic", "table"), [("Orders", "orders"), ("a.b-c_d", "a_b_c_d"), ("x1", "x1")])
def test_a_topic_becomes_a_table_name_that_glue_takes(topic, table):
    assert naming.table_name(topic) == table


@pytest.mark.parametrize(
    ("table", "following"),
    [
        ("t", "t__v2"),
        ("t__v2", "t__v3"),
        ("t__v9", "t__v10"),
        ("orders__values", "orders__values__v2"),
        ("my__view", "my__view__v2"),
        ("x__v1__v2", "x__v1__v3"),
        ("t__v", "t__v__v2"),
    ],
)
def test_a_table_goes_on_in_the_next_version(table, following):
    assert naming.next_version(table) == following


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "a/b", "x" * 250])
def test_what_kafka_refuses_is_refused(name):
    assert not naming.is_topic_name(name)


def test_a_branch_of_a_table_is_addressed_by_a_part_of_its_own():
    assert naming.spark_table("n", "t", branch="b") == "`lake`.`n`.`t`.`branch_b`"
