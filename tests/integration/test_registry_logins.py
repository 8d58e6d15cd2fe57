"""Logins at a schema registry: certificates, behind a proxy as the registry itself has no TLS, and tokens."""

from __future__ import annotations

import ssl
import threading
import time
from dataclasses import replace

import pytest

from lakehouse.core.errors import ConfigError, LakehouseError, RequestRejected, TransientError
from lakehouse.local import client_environment
from lakehouse.local.home import Home
from lakehouse.local.processes import ports, process
from lakehouse.local.servers import registry_server
from resources.schema_registry import SchemaRegistry
from tests.support.processes.cluster import free_ports
from tests.support.servers.certificates import Authority
from tests.support.servers.listener import Listener
from tests.support.servers.proxy import Proxy
from tests.support.servers.token_server import AUDIENCE, TokenServer
from tests.support.topics import TRADES

SECRET = "canary-oauth"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("registry-logins")


@pytest.fixture(scope="module")
def authority(folder):
    """An authority that the proxy trusts for its clients, and that issued the proxy's certificate."""
    return Authority(folder, "authority")


@pytest.fixture(scope="module")
def address(resources, authority):
    """The address of the stack's registry behind a proxy that requires a certificate."""
    certificate = authority.issue("registry")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.file))
    context.load_cert_chain(certificate.certificate, certificate.key)
    context.verify_mode = ssl.CERT_REQUIRED
    with Proxy(resources.schema_registry.url, tls=context) as proxy:
        yield proxy.address


def certified(address, authority, issued, **settings):
    """Return the registry for a client with a certificate, and with this authority for the registry's."""
    files = {"ssl.ca.location": authority.file, "ssl.certificate.location": issued.certificate}
    files |= {"ssl.key.location": issued.key}
    return SchemaRegistry(url=address, settings={name: str(path) for name, path in files.items()} | settings)


def test_client_with_certificate_registers_and_reads(folder, address, authority):
    intermediate = Authority(folder, "intermediate", authority)
    password = {"ssl.key.password": "the key's password"}
    issued = intermediate.issue("client", password=password["ssl.key.password"])
    registry = certified(address, authority, issued, **password)
    id_ = registry.register("certified-value", TRADES)
    assert [schema.id for schema in registry.versions("certified-value")] == [id_]


def test_wrong_password_of_key_is_refused_without_its_text(address, authority):
    issued = authority.issue("encrypted", password="the key's password")
    for password in ({}, {"ssl.key.password": "canary"}):
        with pytest.raises(ConfigError, match="ssl.key.location cannot be used") as raised:
            certified(address, authority, issued, **password).versions("certified-value")
        assert "canary" not in str(raised.value)


def test_untrusted_certificate_of_registry_is_named(folder, address, authority):
    registry = certified(address, Authority(folder, "other"), authority.issue("trusting-another"))
    with pytest.raises(TransientError, match="has a certificate that is not trusted") as raised:
        registry.versions("certified-value")
    assert "ssl.ca.location" in raised.value.remedy


def test_refused_certificate_of_client_is_named(folder, address, authority):
    registry = certified(address, authority, Authority(folder, "unknown").issue("stranger"))
    with pytest.raises(TransientError, match="refused the client's certificate") as raised:
        registry.versions("certified-value")
    assert "ssl.certificate.location" in raised.value.remedy


@pytest.fixture(scope="module")
def provider():
    with TokenServer({"client-1": SECRET}).listening() as server:
        yield server


@pytest.fixture(scope="module")
def protected(folder, provider):
    """The address of a registry that requires tokens of the provider."""
    home = Home(folder / "home")
    context = client_environment.context(home, dict(zip(ports.USUAL, free_ports(len(ports.USUAL)), strict=True)))
    registry = registry_server.server(context)
    settings = {"tenant-enabled": "true", "auth-server-url": provider.address, "client-id": AUDIENCE}
    options = [f"-Dquarkus.oidc.{name}={value}" for name, value in settings.items()]
    jar = registry.command.index("-jar")
    registry = replace(registry, command=(*registry.command[:jar], *options, *registry.command[jar:]))
    try:
        process.wait_until_ready(registry, process.start(registry, home).leader, home, threading.Event())
        yield registry.address
    finally:
        process.stop(home, registry.name)


def with_tokens(address, provider, **settings):
    """Return the registry for a client that logs in with tokens."""
    login = {
        "bearer.auth.client.id": "client-1",
        "bearer.auth.client.secret": SECRET,
        "bearer.auth.issuer.endpoint.url": f"{provider.address}/token",
        "bearer.auth.scope": "schemas",
    }
    return SchemaRegistry(url=address, settings=login | settings)


def test_client_with_tokens_registers_and_renews_them(protected, provider):
    registry = with_tokens(protected, provider)
    provider.lifetime = 3
    id_ = registry.register("with-tokens-value", TRADES)
    before, deadline = len(provider.issued), time.monotonic() + 100
    while len(provider.issued) < before + 3:
        assert [schema.id for schema in registry.versions("with-tokens-value")] == [id_]
        assert time.monotonic() < deadline
    assert set(provider.scopes) == {"schemas"}


def test_lookup_by_guid_sends_token_and_clusters_of_confluent_cloud(provider):
    guid = "11111111-2222-3333-4444-555555555555"
    cloud = {"bearer.auth.logical.cluster": "lsrc-1", "bearer.auth.identity.pool.id": "pool-1"}
    with Listener(always=(200, '[{"context": ".", "id": 7}]', {})).listening() as server:
        registry = with_tokens(server.address, provider, **cloud)
        assert registry.id_of(guid) == 7
        registry.client().get_subjects()
    for request in server.received:
        assert request.headers["Authorization"].startswith("Bearer ey")
        assert (request.headers["target-sr-cluster"], request.headers["Confluent-Identity-Pool-Id"]) == (
            "lsrc-1",
            "pool-1",
        )


def test_wrong_secret_of_client_is_named_without_its_text(protected, provider):
    registry = with_tokens(protected, provider, **{"bearer.auth.client.secret": "canary-wrong"})
    with pytest.raises(LakehouseError, match="issued no token to client 'client-1' at .*invalid_client") as raised:
        registry.versions("with-tokens-value")
    assert "canary-wrong" not in str(raised.value)


def test_expired_token_is_refused(protected, provider, monkeypatch):
    monkeypatch.setattr(provider, "lifetime", -60)
    with pytest.raises(RequestRejected, match=r"refused the login \(HTTP 401\)"):
        with_tokens(protected, provider).versions("with-tokens-value")
