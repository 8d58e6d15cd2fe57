"""The login configuration of Kafka's Java clients."""

from collections.abc import Mapping

_PACKAGE = "org.apache.kafka.common.security."


def jaas_config(mechanism: str, user: str, password: str) -> str:
    """Return the JAAS configuration of a Java client (Kafka, Security: SASL configuration).

    Args:
        mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
        user: User name, or API key.
        password: Password, or API secret.
    """
    kind = "scram.Scram" if mechanism.startswith("SCRAM") else "plain.Plain"
    return _entry(f"{_PACKAGE}{kind}LoginModule", {"username": user, "password": password})


def oauth_jaas_config(options: Mapping[str, str]) -> str:
    """Return the JAAS configuration of a Java client that logs in with tokens.

    Args:
        options: Options of the login module, such as `clientId` (Kafka, OAuthBearerLoginCallbackHandler).
    """
    return _entry(f"{_PACKAGE}oauthbearer.OAuthBearerLoginModule", options)


def msk_jaas_config(role_arn: str, session_name: str, region: str) -> str:
    """Return the JAAS configuration of a Java client that logs in to Amazon MSK by IAM.

    Args:
        role_arn: The role to assume; if empty, the default credentials of the JVM apply.
        session_name: The name of sessions of the role.
        region: The region of STS.
    """
    options = {"awsRoleArn": role_arn, "awsRoleSessionName": session_name, "awsStsRegion": region}
    return _entry("software.amazon.msk.auth.iam.IAMLoginModule", options if role_arn else {})


def _entry(module: str, options: Mapping[str, str]) -> str:
    quoted = (f'{name}="{_jaas_text(value)}"' for name, value in options.items())
    return f"{' '.join([module, 'required', *quoted])};"


def _jaas_text(text: str) -> str:
    """Return a text for use between quotes, with the octal escapes of Java's StreamTokenizer, which parses it."""
    return "".join(c if c.isalnum() or c in "-_.+/=" or not c.isascii() else f"\\{ord(c):03o}" for c in text)
