"""The topics that a deployment creates in Confluent Cloud."""

import pytest

from lakehouse.config.deployment import Deployment
from lakehouse.config.model import Config
from lakehouse.deploy.confluent.declared import DeclaredTopics


def test_topics_of_dead_letters_include_those_of_routes():
    """Spark's account may write and read them, but not create them."""
    letters = {"errors": "log", "dead_letter_topic": "all.dead"}
    config = Config.model_validate(
        {
            "namespace": "n",
            "topics": {"orders": {"name": "orders", **letters}, "users": {"name": "users"}},
            "routes": {
                "shop": {"name": "shop", "pattern": "shop.*", **letters, "partitions": 3},
                "rest": {"name": "rest", "pattern": ".*", "errors": "log", "dead_letter_topic": "rest.dead"},
            },
            "environments": {},
        }
    )
    topics = DeclaredTopics(config, Deployment(name="lake", account="123456789012"))
    assert {topic: entry.name for topic, entry in topics.dead_letters.items()} == {
        "all.dead": "orders",
        "rest.dead": "rest",
    }
    assert set(topics.written) == topics.dead_letters.keys()


@pytest.mark.parametrize(
    ("created", "topic"),
    [
        ("totals AS SELECT 1", "totals"),
        ("IF NOT EXISTS `totals.by-user` AS SELECT 1", "totals.by-user"),
        ("`lakehouse-lake`.`lakehouse-lake`.`totals.by-user` AS SELECT 1", "totals.by-user"),
        ("IF NOT EXISTS `a``b` . `my cluster` . totals (PRIMARY KEY (a) NOT ENFORCED) AS SELECT 1", "totals"),
        ("lake.shared.totals(a INT)", "totals"),
        ("/* all\n users */ `shared`.totals -- a comment\n AS SELECT 1", "totals"),
    ],
)
def test_flink_statement_creates_the_topic_of_its_table(created: str, topic: str):
    config = Config.model_validate({"namespace": "n", "topics": {}, "environments": {}})
    flink = {"totals": f"-- totals\n/* CREATE TABLE other */\nCREATE TABLE {created}"}
    deployment = Deployment(name="lake", account="123456789012", flink=flink)
    assert DeclaredTopics(config, deployment).statements == {topic: "totals"}


def test_flink_statement_without_create_table_creates_no_topic():
    config = Config.model_validate({"namespace": "n", "topics": {}, "environments": {}})
    flink = {
        "copy": "INSERT INTO totals SELECT 1",
        "view": "CREATE VIEW `a`.`b` AS SELECT 1",
        "comments": "-- a -- b " * 99 + "\n" + "/* ** c **/" * 99,
    }
    assert DeclaredTopics(config, Deployment(name="lake", account="123456789012", flink=flink)).statements == {}
