"""Errors of Kafka's clients: their translation, and retries while a leader or group coordinator is elected."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from lakehouse.core.errors import LakehouseError, TransientError, Unreachable
from lakehouse.core.polling import retry

if TYPE_CHECKING:
    from confluent_kafka import KafkaException


MISMATCH = re.compile(
    r"SASL state|handshake failed|wrong version number|SSL listener|SSL connection|incorrect security\.protocol"
)
"""Words of librdkafka's errors if a listener has another protocol than the client."""
LOGIN = re.compile(r"[Aa]uthentication failed|Invalid (username|credentials)|SASL authentication error")
"""Words of its errors if the broker refuses the user."""
TOKEN = re.compile(r"OAUTHBEARER token|OIDC")
"""Words of its errors if it gets no token from the provider."""
UNTRUSTED = re.compile(r"certificate verify failed|certificate could not be verified")
"""Words of its errors if the client does not trust the broker's certificate."""
UNKNOWN_CLIENT = re.compile(
    r"alert (bad|unsupported|revoked|expired|unknown) certificate|alert (unknown ca|certificate)"
)
"""Words of its errors if the broker refuses the client's certificate, or misses one (RFC 8446, Alert Protocol)."""
OTHER_SERVER = re.compile(r"Invalid response size")
"""Words of its errors if a response is none of Kafka's protocol."""


def to_error(error: KafkaException, servers: str, protocol: str = "", reported: str = "") -> LakehouseError | None:
    """Translate an error of a Kafka client; None for any other than a lost connection, permission or transaction.

    Args:
        error: The client's error.
        servers: Addresses of the brokers.
        protocol: The client's `security_protocol`.
        reported: The last error of a connection that the client reported, which has the reason.
    """
    from confluent_kafka import KafkaError

    unreachable = (
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._AUTHENTICATION,
        KafkaError.REQUEST_TIMED_OUT,
        *election_errors(),
    )
    refused = (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    )
    cause = error.args[0]
    if cause.code() == KafkaError._FENCED:
        return TransientError(
            "A newer process replaced this producer, whose transaction was aborted",
            "Nothing of it is visible",
            "Retry the run or command if the other process failed; a stream retries",
        )
    if cause.code() in unreachable:
        reason = re.sub(r"^\S+?/(bootstrap|\d+): | \(after .*\)$", "", reported) or cause.str()
        # They may pass, because a login that was rotated takes time to be known to all brokers.
        if TOKEN.search(reason):
            problem = f"Kafka at {servers} needs a token, and its provider issued none: {_without_body(reason)}"
            remedy = "Correct the settings `sasl.oauthbearer.…` of `kafka`, or the AWS credentials of AWS_MSK_IAM"
            return TransientError(problem, "The call did not complete", remedy)
        if LOGIN.search(reason):
            problem, remedy = f"refused the login: {reason}", "Correct the API key or user, and its secret"
            if "invalid_token" in reason:
                remedy = "Compare issuer, audience and scope of the tokens with those that the brokers expect"
            return TransientError(f"Kafka at {servers} {problem}", "The call did not complete", remedy)
        if UNTRUSTED.search(reason):
            problem = f"Kafka at {servers} has a certificate that is not trusted: {reason}"
            remedy = "Write the file of its authority as `ssl.ca.location` in `settings` of `kafka`"
            return TransientError(problem, "The call did not complete", remedy)
        if UNKNOWN_CLIENT.search(reason):
            problem = f"Kafka at {servers} refused the client's certificate: {reason}"
            remedy = "Correct `ssl.certificate.location` and `ssl.key.location` in `settings` of `kafka`"
            return TransientError(problem, "The call did not complete", remedy)
        if MISMATCH.search(reason):
            problem = f"refused a connection with `security_protocol: {protocol}`: {reason}"
            remedy = "Set `security_protocol` and `sasl_mechanism` of the environment to those of this port"
            return TransientError(f"Kafka at {servers} {problem}", "The call did not complete", remedy)
        if OTHER_SERVER.search(reason):
            problem = f"{servers} is no Kafka broker, or its port expects TLS ({reason})"
            return TransientError(problem, "The call did not complete", "Correct the address, or `security_protocol`")
        check = "that the broker is up (`lakehouse status`), the address, and the API key"
        return Unreachable("Kafka", servers, check, reason)
    if cause.code() in refused:
        return LakehouseError(
            f"Kafka at {servers} refuses: {cause.str()}. The call changed nothing. Grant the permission to the user or "
            f"API key"
        )
    return None


def _without_body(reason: str) -> str:
    """Return an error with the code of the provider's response only (RFC 6749, section 5.2): it may repeat secrets."""
    text, brace, body = reason.partition("{")
    code = re.search(r'"error"\s*:\s*"([\w.-]+)"', body)
    return text + (code[1] if code else "a response without a reason" if brace else "")


TIMEOUT_SECONDS = 10
LOGIN_SECONDS = 60
"""Interval at which a client that lives long gets the login that a secret has now."""
POLL_SECONDS = 0.05

Result = TypeVar("Result")


@contextmanager
def suppress_codes(*codes: str) -> Iterator[None]:
    """Ignore errors of a Kafka client with these codes, by their names in confluent_kafka.KafkaError."""
    from confluent_kafka import KafkaError, KafkaException

    try:
        yield
    except KafkaException as error:
        if error.args[0].code() not in [getattr(KafkaError, code) for code in codes]:
            raise


def election_errors() -> tuple[int, ...]:
    """Return the error codes of brokers just after a topic or group was created, or after a broker restarted."""
    from confluent_kafka import KafkaError

    return (
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    )


def retry_during_election(request: Callable[[], Result]) -> Result:
    """Return the result of a request, retrying while no broker leads or coordinates.

    Raises:
        KafkaException: An election did not end within TIMEOUT_SECONDS, or the request failed for any other reason.
    """
    from confluent_kafka import KafkaException

    def is_electing(error: BaseException) -> bool:
        return isinstance(error, KafkaException) and error.args[0].code() in election_errors()

    return retry(request, when=is_electing, pause=POLL_SECONDS, deadline_seconds=TIMEOUT_SECONDS)
