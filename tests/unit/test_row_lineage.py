"""Rows of change events whose keys change."""

from lakehouse.core.row_lineage import Event, lineages


def events(*described):
    """Return events of one partition, each described as `key`, `-key` for a deletion, or `old>key`."""
    result = []
    for offset, text in enumerate(described):
        old, _, key = text.lstrip("-").rpartition(">")
        result.append(Event(0, offset, key, old or None, text.startswith("-"), None))
    return result


def rows(*described):
    of_events, of_keys = lineages(events(*described))
    return [of_events[0, offset][0] for offset in range(len(described))], of_keys


def test_lineages_chain_of_changed_keys_is_one_row():
    of_events, of_keys = rows("a", "-a", "a>b", "b", "-b", "b>c", "a", "-a", "a>b")

    first, second = of_events[0], of_events[6]
    assert of_events == [first] * 6 + [second] * 3
    assert of_keys["a"] == first != second


def test_lineages_key_of_unknown_row_is_another_row():
    of_events, _ = rows("b", "-b", "a>b")
    assert of_events[0] != of_events[2]


def test_lineages_events_of_partitions_have_order_of_database():
    gone, created = Event(1, 9, "a", None, True, 5), Event(0, 3, "b", "a", False, 5)
    first = Event(1, 2, "a", None, False, 4)

    of_events, _ = lineages([created, gone, first])

    assert len({row for row, _ in of_events.values()}) == 1
    assert sorted(of_events, key=lambda place: of_events[place][1]) == [(1, 2), (1, 9), (0, 3)]
    assert lineages([created._replace(position=None), gone, first]).of_events == {}
