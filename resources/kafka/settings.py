"""Settings of Kafka's clients by the names of librdkafka, and their translation for Java's client, which Spark uses.

Names and meanings: librdkafka, Configuration properties; Kafka, Consumer configs. Only settings that both clients have
are known: with any other, Spark would connect in another way than this process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from resources.client_settings import ADDRESS, COUNT, FILE, ClientSetting, Refusal, SettingsOfClient, certificate_faults
from resources.forms import Form, one_of
from resources.kafka.msk import MSK_IAM, REMEDY, region_of
from resources.kafka.tls import KEYSTORE, KEYSTORE_PASSWORD

TLS_PROTOCOLS = ("SSL", "SASL_SSL")

CONNECTION = {
    "client.id": ClientSetting("Name of the client in logs, quotas and metrics of the brokers."),
    "client.rack": ClientSetting("Rack of the client, which reads from brokers in it (KIP-392)."),
    "client.dns.lookup": ClientSetting(
        "Use of the addresses of a host.", one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")
    ),
    "connections.max.idle.ms": ClientSetting("Milliseconds after which an idle connection is closed.", COUNT),
    "metadata.max.age.ms": ClientSetting("Milliseconds after which topics and brokers are looked up again.", COUNT),
    "metadata.recovery.strategy": ClientSetting(
        "Behaviour if no known broker responds.", one_of("none", "rebootstrap")
    ),
    "reconnect.backoff.ms": ClientSetting("Milliseconds before the first reconnection.", COUNT),
    "reconnect.backoff.max.ms": ClientSetting("Maximum of the growing time before a reconnection.", COUNT),
    "retry.backoff.ms": ClientSetting("Milliseconds before the first repetition of a request.", COUNT),
    "retry.backoff.max.ms": ClientSetting("Maximum of the growing time before a repetition.", COUNT),
    "socket.receive.buffer.bytes": ClientSetting("Size of the receive buffer of a socket.", COUNT),
    "socket.send.buffer.bytes": ClientSetting("Size of the send buffer of a socket.", COUNT),
}
FETCH = {
    "fetch.min.bytes": ClientSetting("Bytes for which a broker waits before it responds.", COUNT),
    "fetch.max.bytes": ClientSetting("Maximum bytes of a response.", COUNT),
    "max.partition.fetch.bytes": ClientSetting("Maximum bytes of one partition in a response.", COUNT),
}
"""Settings of consumers, which other clients do not get."""
TLS = {
    "ssl.ca.location": ClientSetting("PEM file of the authorities that issue the brokers' certificates.", FILE),
    "ssl.ca.pem": ClientSetting("The same as text."),
    "ssl.certificate.location": ClientSetting(
        "PEM file of the client's certificate, followed by those of intermediate authorities.", FILE
    ),
    "ssl.certificate.pem": ClientSetting("The same as text."),
    "ssl.key.location": ClientSetting("PEM file of the certificate's key.", FILE),
    "ssl.key.pem": ClientSetting("The same as text.", is_secret=True),
    "ssl.key.password": ClientSetting("Password of the key.", is_secret=True),
    KEYSTORE: ClientSetting(
        "Keystore (PKCS #12) of certificate and key, in place of their PEM files.",
        FILE,
    ),
    KEYSTORE_PASSWORD: ClientSetting("Password of the keystore.", is_secret=True),
}
OAUTHBEARER = "OAUTHBEARER"
"""The mechanism of logins by tokens."""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER, MSK_IAM)
OAUTH = {
    "sasl.oauthbearer.client.id": ClientSetting("Id of the client at the provider of tokens."),
    "sasl.oauthbearer.client.secret": ClientSetting("The client's secret.", is_secret=True),
    "sasl.oauthbearer.token.endpoint.url": ClientSetting("Address at which the provider issues tokens.", ADDRESS),
    "sasl.oauthbearer.scope": ClientSetting("Requested scope."),
    "sasl.oauthbearer.extensions": ClientSetting(
        "Further values for the broker, such as Confluent Cloud's `logicalCluster=lkc-1,identityPoolId=pool-1`.",
        Form(r"\w+=[^,=]+(,\w+=[^,=]+)*", "a list of NAME=VALUE with commas between", "logicalCluster=lkc-1"),
    ),
    "https.ca.location": ClientSetting("PEM file of the authorities that issue the provider's certificate.", FILE),
    "https.ca.pem": ClientSetting("The same as text."),
}
REQUIRED = (*OAUTH,)[:3]

JAVA_NAMES = {
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
}
"""Names of Java's client where they differ. Certificates and logins differ in more: see tls.py and sasl.py."""

_OWN = "lakehouse relies on its own value. Remove it"
_REFUSED = (
    *(
        Refusal(names, f"the environment has a key for it. Write `{key}` of `kafka`")
        for names, key in {
            r"bootstrap\.servers|metadata\.broker\.list": "bootstrap_servers",
            r"security\.protocol": "security_protocol",
            r"sasl\.mechanisms?": "sasl_mechanism",
            r"sasl\.username": "api_key",
            r"sasl\.password": "api_secret",
            r"sasl\.jaas\.config": "sasl_mechanism",
        }.items()
    ),
    Refusal(
        r"isolation\.level|auto\.offset\.reset|auto\.commit\..*|enable\.auto\..*|offset\.store\..*|group\..*|"
        r"check\.crcs|partition\.assignment\.strategy|allow\.auto\.create\.topics|enable\.partition\.eof|"
        r"session\.timeout\.ms|heartbeat\..*|max\.poll\..*|consume\..*|exclude\.internal\.topics",
        f"exactly-once ingestion depends on it, and {_OWN}",
    ),
    Refusal(
        r"enable\.idempotence|enable\.gapless\.guarantee|transaction.*|(request\.required\.)?acks|max\.in\.flight.*|"
        r"(message\.send\.max\.)?retries|message\..*|delivery\..*|partitioner.*|sticky\..*|linger\.ms|batch\..*|"
        r"queue\..*|queuing\..*|compression\..*|request\.timeout\.ms|produce\..*|dr_.*",
        f"the transactions of producers depend on it, and {_OWN}",
    ),
    Refusal(
        r"socket\.timeout\.ms|default\.api\.timeout\.ms|fetch\.wait\.max\.ms|fetch\.max\.wait\.ms",
        f"time-outs and retries depend on it, and {_OWN}",
    ),
    Refusal(
        r"enable\.ssl\.certificate\.verification|ssl\.endpoint\.identification\.algorithm",
        "certificates of brokers and their names are always verified. Remove it, and write the file of their "
        "authority as 'ssl.ca.location'",
    ),
    Refusal(
        r"oauth_cb",
        "Spark's client gets tokens from a provider, or from a file on each of its machines, and not from a function. "
        "Write 'sasl.oauthbearer.token.endpoint.url', and the client's id and secret",
    ),
    Refusal(
        r"plugin\..*|ssl\.engine.*|ssl\.providers?|security\.providers|.*\.class(es)?|.*_cb|metric\.reporters|opaque",
        "it loads code into the client. Remove it",
    ),
    Refusal(r"debug|log.*|statistics\..*|stats.*", "its output may contain secrets. Remove it"),
    Refusal(r"ssl\.truststore\..*", "only Java's client has it. Write the authorities' PEM file as 'ssl.ca.location'"),
    Refusal(
        r"ssl\.keystore\..*",
        f"only Java's client has it. Write a keystore of type PKCS #12 as '{KEYSTORE}'",
    ),
    Refusal(r"(send|receive)\.buffer\.bytes", "only Java's client has it. Write 'socket.' before it"),
    Refusal(r"enable\.metrics\.push", "lakehouse sets it for Spark. Remove it"),
    Refusal(r"fetch\.message\.max\.bytes", "the former name. Write 'max.partition.fetch.bytes'"),
    Refusal(
        r"sasl\.oauthbearer\.(jwks|expected|clock|sub|scope)\..*",
        "only brokers have it, which verify tokens. Remove it",
    ),
    Refusal(
        r"sasl\.oauthbearer\..*|enable\.sasl\.oauthbearer.*",
        "only logins with the id and secret of a client are supported, which both clients have. Remove it",
    ),
    Refusal(r"sasl\.kerberos\..*", "no login by Kerberos is supported. Use another `sasl_mechanism`"),
    Refusal(
        r"api\.version\..*|broker\..*|client\.software\..*|enable\.(random\.seed|sasl\..*)|"
        r"fetch\.(error|queue)\..*|internal\..*|max\.in\.flight|metadata\.re(quest|covery)\..*|open\..*|queued\..*|"
        r"receive\.message\.max\.bytes|reconnect\.backoff\.jitter\.ms|socket\..*|"
        r"ssl\.(ca\.certificate\.stores|cipher\.suites|crl\.location|curves\.list|sigalgs\.list)|topic\..*",
        "only librdkafka has it, or has it with these values, so that Spark would connect otherwise. Remove it",
    ),
    Refusal(
        r"(auto\.include|metrics\.|sasl\.(client|login)\.|ssl\.).*",
        "only Java's client has it, so that this process would connect otherwise than Spark. Remove it",
    ),
)

SETTINGS = SettingsOfClient({**CONNECTION, **FETCH, **TLS, **OAUTH}, _REFUSED)


def setting_faults(settings: Mapping[str, object]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the faults of settings that depend on each other.

    Args:
        settings: Fields of the resource. Those that refer to environment variables are known at run time only.

    Yields:
        The location below `kafka`, and the problem with its remedy.
    """
    clients = settings.get("settings") or {}
    if not isinstance(clients, Mapping):
        return
    protocol = settings.get("security_protocol", "PLAINTEXT")
    if isinstance(protocol, str) and protocol not in TLS_PROTOCOLS:
        for name in clients.keys() & TLS.keys():
            problem = f"it has no effect with `security_protocol: {protocol}`"
            yield ("settings", name), f"{problem}. Write SSL or SASL_SSL there, or remove it"
    present = {name: value for name, value in clients.items() if value}
    if not settings.get("secret"):  # which may have the others
        yield from ((("settings", name), fault) for name, fault in certificate_faults(present))
        if KEYSTORE_PASSWORD in present and KEYSTORE not in present:
            yield ("settings", KEYSTORE_PASSWORD), f"a password has no effect without its keystore. Add '{KEYSTORE}'"
    if KEYSTORE in present:
        for name in sorted(name for name in present if name.startswith(("ssl.certificate.", "ssl.key."))):
            yield ("settings", name), f"'{KEYSTORE}' has certificate and key. Remove one of them"
    mechanism = settings.get("sasl_mechanism", "") or ""
    if mechanism and protocol in ("PLAINTEXT", "SSL"):
        yield ("sasl_mechanism",), f"a login has no effect with `security_protocol: {protocol}`. Write SASL_SSL there"
    if not mechanism and protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        yield ("security_protocol",), f"{protocol} needs a login. Add `sasl_mechanism`, or write SSL or PLAINTEXT"
    if mechanism == OAUTHBEARER:
        missing = [f"'{name}'" for name in REQUIRED if name not in present]
        if missing and not settings.get("secret"):
            yield ("sasl_mechanism",), f"{OAUTHBEARER} needs {' and '.join(missing)} as well. Add each to `settings`"
    if mechanism in (OAUTHBEARER, MSK_IAM):
        for key in ("api_key", "api_secret"):
            if settings.get(key):
                yield (key,), f"a user has no effect with `sasl_mechanism: {mechanism}`. Remove it"
    if mechanism == MSK_IAM:
        if protocol == "SASL_PLAINTEXT":
            yield ("security_protocol",), f"{MSK_IAM} needs TLS. Write SASL_SSL"
        servers = settings.get("bootstrap_servers")
        if isinstance(servers, str) and servers and region_of(servers) is None:
            yield ("bootstrap_servers",), f"{MSK_IAM} needs brokers of Amazon MSK. {REMEDY}"
    if mechanism != OAUTHBEARER and isinstance(mechanism, str):
        for name in clients.keys() & OAUTH.keys():
            problem = f"it has no effect with `sasl_mechanism: {mechanism}`" if mechanism else "it has no effect"
            yield ("settings", name), f"{problem}. Write `sasl_mechanism: {OAUTHBEARER}`, or remove it"


def java_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of connections and consumers by the names of Java's client."""
    return {JAVA_NAMES.get(name, name): value for name, value in settings.items() if name in CONNECTION | FETCH}
