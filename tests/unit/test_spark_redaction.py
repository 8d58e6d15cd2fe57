"""Redaction of secrets in plans printed by Spark."""

import re

import pytest
from google.protobuf import text_format
from pyspark.sql.connect.proto import Plan

from resources.kafka.jaas import jaas_config
from resources.kafka.kafka import Kafka
from resources.spark.spark import REDACTION
from tests.support.servers.certificates import Authority

# Java and Python agree on the syntax of this pattern.
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


def printed(text, option="kafka.sasl.jaas.config"):
    """Return a plan with this option as Spark's ProtoUtils prints it."""
    plan = Plan()
    plan.root.read.data_source.options[option] = text
    return text_format.MessageToString(plan)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
@pytest.mark.parametrize("secret", SECRETS)
def test_redaction_hides_secret_in_repeatedly_printed_plan(mechanism, secret):
    options = Kafka(
        bootstrap_servers="b:9092",
        security_protocol="SASL_SSL",
        sasl_mechanism=mechanism,
        api_key="KEY",
        api_secret=secret,
    ).spark_options()
    text = options["kafka.sasl.jaas.config"]
    for _ in range(3):
        assert CANARY in text and "KEY" in text
        redacted = PATTERN.sub("…", text)
        assert CANARY not in redacted and "KEY" in redacted
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
def test_redaction_hides_other_spellings_of_options(text):
    for plan_text in (text, printed(text), printed(printed(text))):
        assert CANARY in plan_text and CANARY not in PATTERN.sub("…", plan_text)


@pytest.mark.parametrize("length", [None, 200])
def test_redaction_hides_certificate_key_in_printed_plan(tmp_path, length):
    issued = Authority(tmp_path, "authority").issue("client")
    files = {"ssl.certificate.location": str(issued.certificate), "ssl.key.location": str(issued.key)}
    options = Kafka(bootstrap_servers="b:9092", security_protocol="SSL", settings=files).spark_options()
    # Spark shortens the texts of long options.
    text = options["kafka.ssl.keystore.key"][:length]
    lines = text.splitlines()[1:-1]
    for _ in range(3):
        assert all(line in text for line in lines)
        redacted = PATTERN.sub("…", text)
        assert not any(line in redacted for line in lines)
        text = printed(text, "kafka.ssl.keystore.key")
        assert "ssl.keystore.key" in PATTERN.sub("…", text)


def test_redaction_hides_key_among_options():
    names = re.compile(REDACTION["spark.sql.redaction.options.regex"])
    assert names.search("kafka.ssl.keystore.key") and not names.search("kafka.ssl.keystore.type")


@pytest.mark.parametrize("secret", SECRETS)
def test_jaas_config_secret_stays_within_quotes(secret):
    text = jaas_config("PLAIN", "KEY", secret)
    [(user, password)] = re.findall(r'^\S+ required username="([^"\n]*)" password="([^"\n]*)";$', text)
    # Java's StreamTokenizer decodes octal escapes in quoted text.
    assert user == "KEY"
    assert re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), password) == secret
