"""Topics by pattern: which route has a topic, what its table is called, and what is wrong with a route."""

import pytest

from lakehouse.config import loader
from lakehouse.config.topic import Topic
from lakehouse.core.errors import ConfigError

ROUTES = r"""
namespace: n
topics:
  shop.special: {mode: upsert, key: id}
routes:
  shop: {pattern: 'shop\.(?P<entity>\w+)', table: 'shop_{entity}', mode: upsert, key: id, errors: log}
  rest: {pattern: '.*'}
environments: {local: {}}
"""


def load(tmp_path, text):
    file = tmp_path / "lakehouse.yaml"
    file.write_text(text)
    return loader.load(file)


def test_a_topic_is_of_its_own_entry_else_of_the_first_route_that_matches(tmp_path):
    loaded = load(tmp_path, ROUTES)
    names = ["shop.orders", "shop.special", "Other-1", "__consumer_offsets"]

    found = {topic.name: topic for topic in loaded.routed(names)}

    assert {name: topic.table for name, topic in found.items()} == {"shop.orders": "shop_orders", "Other-1": "other_1"}
    orders = found["shop.orders"]
    assert (orders.mode, orders.key, orders.errors, orders.topic) == ("upsert", ("id",), "log", "shop.orders")
    assert type(orders) is Topic and loaded.topic("shop.orders") == orders
    assert loaded.topic("shop.special").table == "shop_special"


@pytest.mark.parametrize(
    ("route", "said"),
    [
        ("{pattern: '('}", "routes.r.pattern: not a regular expression"),
        ("{pattern: 'a', table: '{b}'}", "routes.r.table: the template names 'b', which is no group"),
        ("{pattern: 'a', mode: upsert}", "routes.r: upsert needs to know which row"),
        ("{pattern: 'a', kafka_topic: b}", "routes.r: a route takes topics that exist"),
        ("{patern: 'a'}", "routes.r.patern: no such key. Did you mean 'pattern'?"),
        ("{}", "routes.r.pattern: missing. Add it"),
    ],
)
def test_each_fault_names_its_place(tmp_path, route, said):
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, f"namespace: n\ntopics: {{}}\nroutes:\n  r: {route}\nenvironments: {{local: {{}}}}\n")
    assert said in str(raised.value)


EVERYTHING = """
namespace: n
topics:
  billing: {on_incompatible: new_table}
  orders_v1: {}
  users__v3: {}
routes:
  all: {pattern: '.*', on_incompatible: %s}
environments: {local: {}}
"""


@pytest.mark.parametrize(
    ("name", "policy", "said"),
    [
        ("orders.v1", "stop", "becomes table 'orders_v1', and so does topic 'orders_v1'"),
        ("billing__dead_letters", "stop", "names dead-letter tables"),
        ("shop__dead_letters", "stop", "names dead-letter tables"),
        ("billing__v2", "stop", "is where 'billing' may continue"),
        ("shop__v2", "new_table", "may be where another one continues"),
        ("users", "new_table", "is where 'users' may continue"),
        ("x" * 240, "stop", "at most 235 characters"),
    ],
)
def test_a_routed_topic_whose_table_is_anothers_is_a_fault_and_no_other_is(tmp_path, name, policy, said):
    loaded = load(tmp_path, EVERYTHING % policy)
    others = {"shop-b", "x"}

    found = {topic: known for _, topic, known in loaded.matched([name, *others])}

    assert isinstance(found[name], ConfigError) and said in str(found[name])
    assert {topic.name for topic in loaded.routed([name, *others])} == others


def test_a_new_topic_takes_no_place_of_one_that_is_routed_to_the_same_table(tmp_path):
    loaded = load(tmp_path, EVERYTHING % "stop")
    assert [topic.name for topic in loaded.routed(["shop.b"])] == ["shop.b"]
    # Which of the two the table is of, its position says: lakehouse.core.batch refuses the other's records.
    assert [topic.name for topic in loaded.routed(["shop.b", "Shop-b"])] == ["Shop-b", "shop.b"]


def test_a_route_that_never_goes_on_beside_takes_names_with_versions(tmp_path):
    loaded = load(tmp_path, EVERYTHING % "stop")
    assert [topic.table for topic in loaded.routed(["shop", "shop__v2", "users"])] == ["shop", "shop__v2", "users"]


def test_topics_of_dead_letters_and_bookmarks_are_of_no_route(tmp_path):
    entries = "{a: {errors: log, dead_letter_topic: a.dead}}"
    routes = "{r: {pattern: '.*', errors: log, dead_letter_topic: all.dead}}"
    loaded = load(tmp_path, f"namespace: n\ntopics: {entries}\nroutes: {routes}\nenvironments: {{local: {{}}}}\n")
    names = ["a", "a.dead", "all.dead", "lakehouse.bookmarks", "b"]
    assert [topic.name for topic in loaded.routed(names)] == ["b"]


def test_dead_letters_and_derived_topics_do_not_go_round_in_a_circle(tmp_path):
    entries = """
  a: {errors: log, dead_letter_topic: a}
  b: {errors: log, dead_letter_topic: in-kafka}
  c: {kafka_topic: in-kafka}
  d: {source: {type: derived, from: e, transform: 'm:f'}}
  e: {source: {type: derived, from: d, transform: 'm:f'}}
  f: {source: {type: derived, from: f, transform: 'm:f'}}
  g: {source: {type: derived, from: d, transform: 'm:f'}}
"""
    routes = (
        "{r: {pattern: 'x.*', errors: log, dead_letter_topic: c}, s: {pattern: y, errors: log, dead_letter_topic: a}}"
    )
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, f"namespace: n\ntopics: {entries}\nroutes: {routes}\nenvironments: {{local: {{}}}}\n")
    said = str(raised.value)
    assert "topics.a.dead_letter_topic: entry 'a' reads that topic" in said
    assert "topics.b.dead_letter_topic: entry 'c' reads that topic" in said
    assert "routes.s.dead_letter_topic: entry 'a' reads that topic" in said
    for name, way in (("d", "d from e from d"), ("e", "e from d from e"), ("f", "f from f")):
        assert f"topics.{name}.source.from: '{name}' is derived from itself ({way})" in said
    assert "topics.g" not in said and "routes.r" not in said
