"""Logins at a schema registry: certificates, behind a proxy as the registry itself has no TLS."""

from __future__ import annotations

import ssl

import pytest

from lakehouse.core.errors import ConfigError, TransientError
from resources.schema_registry import SchemaRegistry
from tests.support.servers.certificates import Authority
from tests.support.servers.proxy import Proxy
from tests.support.topics import TRADES


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
    own = authority.issue("registry")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.file))
    context.load_cert_chain(own.certificate, own.key)
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
