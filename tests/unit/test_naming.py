"""Names derived from a topic's name."""

import pytest

from lakehouse.core.tables import naming
from lakehouse.core.tables.naming import TableRef


@pytest.mark.parametrize(("topic", "table"), [("Orders", "orders"), ("a.b-c_d", "a_b_c_d"), ("x1", "x1")])
def test_table_name_is_valid_in_glue(topic, table):
    assert naming.table_name(topic) == table


@pytest.mark.parametrize(
    ("table", "next_table"),
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
def test_next_version_increments_suffix(table, next_table):
    assert TableRef("n", table).next_version == TableRef("n", next_table)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "a/b", "x" * 250])
def test_is_topic_name_invalid_is_false(name):
    assert not naming.is_topic_name(name)


def test_new_folder_of_longest_name_is_a_new_file_name():
    names = {naming.new_folder("t" * 255) for _ in range(2)}
    assert len(names) == 2 and {len(name) for name in names} == {255}


def test_spark_path_of_branch_is_a_separate_part():
    assert TableRef("n", "t").spark_path("b") == "`lake`.`n`.`t`.`branch_b`"
