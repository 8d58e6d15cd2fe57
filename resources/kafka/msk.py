"""Logins to Amazon MSK by IAM: both clients sign a request with AWS credentials, which no setting contains.

librdkafka sends the signed request as the token of OAUTHBEARER, Java's client as the payload of AWS_MSK_IAM (Amazon
MSK, IAM access control).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from lakehouse.core.errors import ConfigError, LakehouseError, RequestRejected, Unreachable
from resources.aws.clients import SESSION_NAME, aws_errors, botocore_session
from resources.kafka.jaas import msk_jaas_config

if TYPE_CHECKING:
    from botocore.credentials import ReadOnlyCredentials

MSK_IAM = "AWS_MSK_IAM"
"""The mechanism of logins by IAM, as Java's client names it."""
REMEDY = "Write the brokers of an MSK cluster as `bootstrap_servers`, as in its bootstrap string for IAM"
HANDLER = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
CHECK = "the AWS credentials of this process and, if `role_arn` is set, the permission to assume that role"

_BROKER = re.compile(r"[^\s,:]+\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?:\d+")


def region_of(servers: str) -> str | None:
    """Return the AWS region in the names of brokers, as Java's client finds it; None if they are not those of MSK."""
    brokers = [_BROKER.fullmatch(broker.strip()) for broker in servers.split(",")]
    regions = {broker[1] if broker else None for broker in brokers}
    return regions.pop() if len(regions) == 1 else None


def librdkafka_settings(servers: str, role_arn: str) -> dict[str, object]:
    """Return the settings of librdkafka, which requests a token when it connects and before the last one expires.

    Arguments and errors are those of `signer`.
    """
    sign = signer(servers, role_arn)
    return {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: sign()}


def signer(servers: str, role_arn: str) -> Callable[[], tuple[str, float]]:
    """Return a function that returns a signed request as a token, and when it expires, in seconds since the epoch.

    Args:
        servers: Addresses of the brokers.
        role_arn: The role to assume; if empty, the default credentials of AWS clients apply.

    Raises:
        ConfigError: The brokers are not those of an MSK cluster.
        LakehouseError: There are no credentials.
    """
    region = region_of(servers)
    if region is None:
        problem = f"lakehouse.yaml: kafka.bootstrap_servers: AWS_MSK_IAM needs brokers of Amazon MSK, not {servers}"
        raise ConfigError(problem, "No connection was made", REMEDY)
    credentials = _credentials_of(role_arn, region)
    # An error in the callback would reach the user as a time-out only.
    credentials()
    return lambda: _token(region, credentials())


def java_settings(servers: str, role_arn: str) -> dict[str, str]:
    """Return the settings of Java's client, which uses the credentials of Spark's driver and of its executors."""
    return {
        "sasl.mechanism": MSK_IAM,
        "sasl.jaas.config": msk_jaas_config(role_arn, SESSION_NAME, region_of(servers) or ""),
        "sasl.client.callback.handler.class": HANDLER,
    }


def _token(region: str, credentials: ReadOnlyCredentials) -> tuple[str, float]:
    """Return a signed request as a token, and when it expires, in seconds since the epoch."""
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    from botocore.credentials import CredentialProvider

    class Provider(CredentialProvider):
        def load(self) -> ReadOnlyCredentials:
            return credentials

    token, expires_ms = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider(region, Provider())
    return token, expires_ms / 1000


def _credentials_of(role_arn: str, region: str) -> Callable[[], ReadOnlyCredentials]:
    """Return a function that returns the credentials of a role, renewed before they expire."""
    session = botocore_session(role_arn, region)
    where = role_arn or "default credentials"

    def credentials() -> ReadOnlyCredentials:
        with aws_errors(
            lambda error: RequestRejected("AWS", where, str(error), CHECK),
            lambda error: Unreachable("AWS", region, CHECK, error),
        ):
            loaded = session.get_credentials()
            frozen = loaded.get_frozen_credentials() if loaded else None
        if frozen is None or not frozen.access_key or not frozen.secret_key:
            raise LakehouseError(
                "AWS_MSK_IAM needs AWS credentials, and this process has none",
                "No connection was made",
                "Provide them as for other AWS clients, such as by AWS_PROFILE or the role of the machine",
            )
        return frozen

    return credentials
