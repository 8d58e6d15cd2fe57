"""Routes: topics declared by pattern, names of their tables, and errors."""

import pytest

from lakehouse.config import loader
from lakehouse.config.model import Topic
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


def test_routed_declared_entry_precedes_first_matching_route(tmp_path):
    config = load(tmp_path, ROUTES)
    names = ["shop.orders", "shop.special", "Other-1", "__consumer_offsets"]

    topics = {topic.name: topic for topic in config.routed_topics(names)}

    assert {name: topic.table for name, topic in topics.items()} == {"shop.orders": "shop_orders", "Other-1": "other_1"}
    orders = topics["shop.orders"]
    assert (orders.mode, orders.key, orders.errors, orders.topic) == ("upsert", ("id",), "log", "shop.orders")
    assert type(orders) is Topic and config.topic("shop.orders") == orders
    assert config.topic("shop.special").table == "shop_special"


def test_select_route_returns_its_topics_in_kafka(tmp_path):
    config = load(tmp_path, ROUTES)
    kafka = ["shop.orders", "shop.users", "shop.special", "other"]

    def selected(*names):
        return [topic.name for topic in config.select(names, kafka)]

    assert selected("shop") == ["shop.orders", "shop.users"]
    assert selected("shop.special", "shop.orders", "rest") == ["shop.special", "shop.orders", "other"]
    assert selected("shop.orders", "shop") == ["shop.orders", "shop.users"]
    with pytest.raises(ConfigError, match="__internal"):
        selected("__internal")


@pytest.mark.parametrize(
    ("route", "message"),
    [
        ("{pattern: '('}", "routes.r.pattern: not a valid regular expression"),
        ("{pattern: 'a', table: '{b}'}", "routes.r.table: the template names 'b', which is not a group"),
        ("{pattern: 'a', table: 'b_{}'}", "routes.r.table: not a valid template: "),
        ("{pattern: '(?P<e>a)', table: '{e.x}'}", "routes.r.table: not a valid template: 'str' object has no"),
        ("{pattern: '(?P<e>a)', table: '{e[x]}'}", "routes.r.table: not a valid template: string indices must be"),
        ("{pattern: 'a', value_schema: '{}'}", "routes.r.value_schema: unknown key. Remove it"),
        ("{pattern: 'a', mode: upsert}", "routes.r: 'mode: upsert' needs the columns"),
        ("{pattern: 'a', kafka_topic: b}", "routes.r: a route matches existing topics only"),
        ("{patern: 'a'}", "routes.r.patern: unknown key. Did you mean 'pattern'?"),
        ("{}", "routes.r.pattern: this key is required. Add it"),
    ],
)
def test_load_invalid_route_names_key(tmp_path, route, message):
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, f"namespace: n\ntopics: {{}}\nroutes:\n  r: {route}\nenvironments: {{local: {{}}}}\n")
    assert message in str(raised.value)


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
    ("name", "policy", "message"),
    [
        ("orders.v1", "stop", "maps to table 'orders_v1', like topic 'orders_v1'"),
        ("billing__dead_letters", "stop", "are dead-letter tables"),
        ("shop__dead_letters", "stop", "are dead-letter tables"),
        ("billing__v2", "stop", "is where topic 'billing' may continue"),
        ("shop__v2", "new_table", "may be the continuation of another one"),
        ("users", "new_table", "is where topic 'users' may continue"),
        ("x" * 240, "stop", "at most 235 characters"),
    ],
)
def test_routed_topic_with_conflicting_table_is_a_fault(tmp_path, name, policy, message):
    config = load(tmp_path, EVERYTHING % policy)
    others = {"shop-b", "x"}

    matches = {topic: match for _, topic, match in config.match_routes([name, *others])}

    assert isinstance(matches[name], ConfigError) and message in str(matches[name])
    assert {topic.name for topic in config.routed_topics([name, *others])} == others


def test_routed_topic_without_an_optional_group_is_a_fault(tmp_path):
    """Its table was named shop_none."""
    route = "{pattern: 'shop(\\.(?P<entity>\\w+))?', table: 'shop_{entity}'}"
    config = load(tmp_path, f"namespace: n\ntopics: {{}}\nroutes: {{r: {route}}}\nenvironments: {{local: {{}}}}\n")

    matches = {topic: match for _, topic, match in config.match_routes(["shop", "shop.cart"])}

    assert matches["shop.cart"].table == "shop_cart"
    assert isinstance(matches["shop"], ConfigError) and "optional group 'entity'" in str(matches["shop"])


def test_routed_topics_of_one_table_are_all_returned(tmp_path):
    config = load(tmp_path, EVERYTHING % "stop")
    assert [topic.name for topic in config.routed_topics(["shop.b"])] == ["shop.b"]
    # The stored position decides whose table it is: lakehouse.core.offsets.batch refuses records of the other topic.
    assert [topic.name for topic in config.routed_topics(["shop.b", "Shop-b"])] == ["Shop-b", "shop.b"]


def test_routed_names_with_versions_without_roll_over_are_accepted(tmp_path):
    config = load(tmp_path, EVERYTHING % "stop")
    names = ["shop", "shop__v2", "users"]
    assert [topic.table for topic in config.routed_topics(names)] == names


def test_routed_excludes_dead_letter_and_bookmark_topics(tmp_path):
    entries = "{a: {errors: log, dead_letter_topic: a.dead}}"
    routes = "{r: {pattern: '.*', errors: log, dead_letter_topic: all.dead}}"
    config = load(tmp_path, f"namespace: n\ntopics: {entries}\nroutes: {routes}\nenvironments: {{local: {{}}}}\n")
    names = ["a", "a.dead", "all.dead", "lakehouse.bookmarks", "b"]
    assert [topic.name for topic in config.routed_topics(names)] == ["b"]


def test_load_circular_dead_letters_or_derivations_are_refused(tmp_path):
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
    message = str(raised.value)
    assert "topics.a.dead_letter_topic: entry 'a' ingests that topic" in message
    assert "topics.b.dead_letter_topic: entry 'c' ingests that topic" in message
    assert "routes.s.dead_letter_topic: entry 'a' ingests that topic" in message
    for name, cycle in (("d", "d from e from d"), ("e", "e from d from e"), ("f", "f from f")):
        assert f"topics.{name}.source.from: '{name}' is derived from itself ({cycle})" in message
    assert "topics.g" not in message and "routes.r" not in message
