"""Topics by pattern: which route has a topic, what its table is called, and what is wrong with a route."""

import pytest

from lakehouse import config
from lakehouse.errors import ConfigError
from lakehouse.topic import Topic

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
    return config.load(file)


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
        ("shop.b", "stop", "becomes table 'shop_b', and so does topic 'shop-b'"),
        ("billing__dead_letters", "stop", "names dead-letter tables"),
        ("shop__dead_letters", "stop", "names dead-letter tables"),
        ("billing__v2", "stop", "is where 'billing' may go on"),
        ("shop__v2", "new_table", "may be where another one goes on"),
        ("users", "new_table", "is where 'users' may go on"),
        ("x" * 240, "stop", "at most 235 characters"),
    ],
)
def test_a_routed_topic_whose_table_is_anothers_is_a_fault_and_no_other_is(tmp_path, name, policy, said):
    loaded = load(tmp_path, EVERYTHING % policy)
    others = {"shop-b", "x"}

    found = {topic: known for _, topic, known in loaded.matched([name, *others])}

    assert isinstance(found[name], ConfigError) and said in str(found[name])
    assert {topic.name for topic in loaded.routed([name, *others])} == others


def test_a_route_that_never_goes_on_beside_takes_names_with_versions(tmp_path):
    loaded = load(tmp_path, EVERYTHING % "stop")
    assert [topic.table for topic in loaded.routed(["shop", "shop__v2", "users"])] == ["shop", "shop__v2", "users"]
