"""The login configuration of Kafka's Java clients."""


def jaas_config(mechanism: str, user: str, password: str) -> str:
    """Return the JAAS configuration of a Java client (Kafka, Security: SASL configuration).

    Args:
        mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
        user: User name, or API key.
        password: Password, or API secret.
    """
    kind = "scram.Scram" if mechanism.startswith("SCRAM") else "plain.Plain"
    module = f"org.apache.kafka.common.security.{kind}LoginModule"
    return f'{module} required username="{_jaas_text(user)}" password="{_jaas_text(password)}";'


def _jaas_text(text: str) -> str:
    """Return a text for use between quotes, with the octal escapes of Java's StreamTokenizer, which parses it."""
    return "".join(c if c.isalnum() or c in "-_.+/=" or not c.isascii() else f"\\{ord(c):03o}" for c in text)
