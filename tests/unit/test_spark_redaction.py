"""Secrets in the texts that Spark makes of plans: the pattern, on a plan as Spark prints it."""

import re

import pytest
from google.protobuf import text_format
from pyspark.sql.connect.proto import Plan

from resources.jaas import jaas_config
from resources.kafka import Kafka
from resources.spark import REDACTION

# Java's and Python's patterns agree on what this one uses.
PATTERN = re.compile(REDACTION["spark.sql.redaction.string.regex"])
CANARY = "canary7f3a"
SECRETS = [
    CANARY,
    f"a b'{CANARY}",
    f'"{CANARY}',
    f'\\"{CANARY}',
    f"\\\\{CANARY}",
    f";{CANARY}",
    f"\n{CANARY}",
    f"é{CANARY}",
]


def printed(text):
    """A plan that reads with an option, as ProtoUtils of Spark prints it."""
    plan = Plan()
    plan.root.read.data_source.options["kafka.sasl.jaas.config"] = text
    return text_format.MessageToString(plan)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_hidden_however_often_the_text_is_printed(mechanism, secret):
    options = Kafka(
        bootstrap_servers="b:9092", sasl_mechanism=mechanism, api_key="KEY", api_secret=secret
    ).spark_options()
    text = options["kafka.sasl.jaas.config"]
    for _ in range(3):
        assert CANARY in text and "KEY" in text
        hidden = PATTERN.sub("…", text)
        assert CANARY not in hidden and "KEY" in hidden
        text = printed(text)


@pytest.mark.parametrize(
    "text",
    [
        f"Module required password='{CANARY}' username='KEY';",
        f'Module required username="KEY" password = "{CANARY}";',
        f'Module required username="KEY" clientSecret="\\"{CANARY}";',
        f"Module required username=KEY password={CANARY};",
        f'Module required username="KEY" PASSWORD="it\'s {CANARY}";',
    ],
)
def test_other_ways_to_write_one_are_hidden_too(text):
    for shown in (text, printed(text), printed(printed(text))):
        assert CANARY in shown and CANARY not in PATTERN.sub("…", shown)


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_does_not_end_the_quotes_it_stands_in(secret):
    text = jaas_config("PLAIN", "KEY", secret)
    [(user, password)] = re.findall(r'^\S+ required username="([^"\n]*)" password="([^"\n]*)";$', text)
    # What Java's StreamTokenizer makes of a quoted text.
    assert user == "KEY"
    assert re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), password) == secret
