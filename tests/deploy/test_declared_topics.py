"""The topics that a deployment creates in Confluent Cloud."""

from lakehouse.config.deployment import Deployment
from lakehouse.config.loader import Config
from lakehouse.deploy.confluent.topics.declared_topics import DeclaredTopics


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
