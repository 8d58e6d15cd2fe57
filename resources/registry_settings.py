"""Settings of the schema registry's client, by the names of Confluent's client for Python."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping

from lakehouse.core.errors import ConfigError, TransientError, redact_credentials
from resources.client_settings import ADDRESS, FILE, ClientSetting, Refusal, SettingsOfClient, certificate_faults

TLS = {
    "ssl.ca.location": ClientSetting("PEM file of the authorities that issue the registry's certificate.", FILE),
    "ssl.certificate.location": ClientSetting(
        "PEM file of the client's certificate, followed by those of intermediate authorities.", FILE
    ),
    "ssl.key.location": ClientSetting("PEM file of the certificate's key.", FILE),
    "ssl.key.password": ClientSetting("Password of the key.", is_secret=True),
}
BEARER = {
    "bearer.auth.client.id": ClientSetting("Id of the client at the provider of tokens."),
    "bearer.auth.client.secret": ClientSetting("The client's secret.", is_secret=True),
    "bearer.auth.issuer.endpoint.url": ClientSetting("Address at which the provider issues tokens.", ADDRESS),
    "bearer.auth.scope": ClientSetting("Requested scope."),
    "bearer.auth.logical.cluster": ClientSetting("Id of the registry in Confluent Cloud, such as `lsrc-1`."),
    "bearer.auth.identity.pool.id": ClientSetting("Id of the identity pool in Confluent Cloud, such as `pool-1`."),
}
REQUIRED = (*BEARER,)[:3]

_REFUSED = (
    Refusal(r"url|schema\.registry\.url", "the environment has a key for it. Write `url` of `schema_registry`"),
    Refusal(
        r"basic\.auth\..*",
        "the environment has keys for it. Write `api_key` and `api_secret` of `schema_registry`",
    ),
    Refusal(
        r"timeout|max\.retries|retries\..*|cache\..*",
        "time-outs and retries depend on it, and lakehouse relies on its own value. Remove it",
    ),
    Refusal(
        r"bearer\.auth\.credentials\.source", "the id and secret of a client are the only source of tokens. Remove it"
    ),
    Refusal(
        r"bearer\.auth\.token",
        "a token expires. Write 'bearer.auth.client.id', 'bearer.auth.client.secret' and "
        "'bearer.auth.issuer.endpoint.url'",
    ),
    Refusal(r"bearer\.auth\.custom\..*", "it loads code into the client. Remove it"),
    Refusal(r"proxy", "it may have a password. Set the environment variable HTTPS_PROXY"),
    Refusal(
        r"ssl\.(ca|certificate|key)\.pem",
        "the registry's client reads files only. Write the text into a file, and its path as '.location'",
    ),
    Refusal(
        r"ssl\.(truststore|keystore)\..*",
        "only Java's client has it. Write PEM files as 'ssl.ca.location', 'ssl.certificate.location' and "
        "'ssl.key.location'",
    ),
)

SETTINGS = SettingsOfClient({**TLS, **BEARER}, _REFUSED)


def setting_faults(settings: Mapping[str, object]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the faults of settings that depend on each other.

    Args:
        settings: Fields of the resource. Those that refer to environment variables are known at run time only.

    Yields:
        The location below `schema_registry`, and the problem with its remedy.
    """
    clients = settings.get("settings")
    if not isinstance(clients, Mapping):
        return
    url = settings.get("url")
    if isinstance(url, str) and url.startswith("http:"):
        for name in clients.keys() & TLS.keys():
            yield ("settings", name), "it has no effect with an address http://…. Write https:// there, or remove it"
    present = {name: value for name, value in clients.items() if value}
    yield from ((("settings", name), fault) for name, fault in certificate_faults(present))
    if bearer := sorted(present.keys() & BEARER.keys()):
        if missing := [f"'{name}'" for name in REQUIRED if name not in present]:
            yield ("settings", bearer[0]), f"a login with tokens needs {' and '.join(missing)} as well. Add each"
        for key in ("api_key", "secret"):
            if settings.get(key):
                yield (key,), "`settings` has a login with tokens. Remove one of them"


def tls_context(settings: Mapping[str, object]) -> ssl.SSLContext | None:
    """Return the TLS context of the settings; None without any of them.

    Raises:
        ConfigError: A file cannot be read, or is not what its setting says.
    """
    files = {name: str(settings[name]) for name in TLS if name in settings}
    if not files:
        return None
    name = "ssl.ca.location"
    try:
        context = ssl.create_default_context(cafile=files.get(name))
        name = "ssl.certificate.location and ssl.key.location"
        if certificate := files.get("ssl.certificate.location"):
            # Without a password, OpenSSL would ask for that of an encrypted key at the terminal.
            context.load_cert_chain(certificate, files["ssl.key.location"], files.get("ssl.key.password", ""))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        problem = f"lakehouse.yaml: schema_registry.settings: the files of {name} cannot be used: {reason}"
        raise ConfigError(problem, "No connection was made", "Correct the paths, or 'ssl.key.password'") from None
    return context


def tls_error(system: str, address: str, text: str) -> TransientError | None:
    """Return the error for a certificate that one side does not trust; None for any other.

    Args:
        system: The system, with its article.
        address: Its address.
        text: The error of Python's TLS (ssl, Exceptions).
    """
    where = f"{system} at {redact_credentials(address)}"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        problem, setting = (
            f"{where} has a certificate that is not trusted",
            "the file of its authority as `ssl.ca.location`",
        )
    elif "ALERT" in text and ("CERTIFICATE" in text or "UNKNOWN_CA" in text):
        problem, setting = (
            f"{where} refused the client's certificate",
            "`ssl.certificate.location` and `ssl.key.location`",
        )
    else:
        return None
    return TransientError(f"{problem}: {text}", "The call did not complete", f"Correct {setting} in `settings`")
