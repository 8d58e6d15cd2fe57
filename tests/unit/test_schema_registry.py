"""The schema registry client: bounded requests, and errors that are never mistaken for "not found"."""

import time

import pytest
from pyiceberg.schema import Schema, assign_fresh_schema_ids

from lakehouse.config.model import Topic
from lakehouse.core.errors import LakehouseError, RequestRejected, SchemaError, Unreachable
from lakehouse.formats import evolution
from lakehouse.formats.budget import MAX_CHARACTERS, MAX_REFERENCES
from lakehouse.pipeline.schemas.decoding import resolve_schemas
from resources import schema_registry
from resources.schema_registry import SchemaRegistry
from tests.support.servers.registry_server import RegistryServer


@pytest.fixture
def server():
    with RegistryServer().listening() as server:
        yield server


@pytest.fixture
def registry(server):
    return SchemaRegistry(url=server.address)


def test_by_id_references_follow_their_dependencies(server, registry):
    server.add(1, "money", "money")
    server.add(2, "price", "price", references={"money.avsc": "money"})
    server.add(3, "order", references={"price.avsc": "price", "money.avsc": "money"})
    schema = registry.by_id(3)
    assert (schema.text, schema.references) == ("order", (("money.avsc", "money"), ("price.avsc", "price")))
    assert len(server.requests) == 3


def test_id_of_guid_is_looked_up_and_versions_have_it(server, registry):
    guid, unknown = "00112233-4455-6677-8899-aabbccddeeff", "00112233-4455-6677-8899-aabbccddee00"
    server.add(3, "order", "order-value")
    server.guids[guid] = 3
    assert (registry.id_of(guid), registry.id_of(unknown)) == (3, None)
    assert [version.guid for version in registry.versions("order-value")] == [guid]


def test_id_of_registry_that_knows_no_guids_or_fails_is_an_error(server, registry):
    server.knows_guids = False
    with pytest.raises(SchemaError, match=f"{server.address} does not look up GUIDs"):
        registry.id_of("00112233-4455-6677-8899-aabbccddeeff")
    server.status = 500
    with pytest.raises(Unreachable):
        registry.id_of("00112233-4455-6677-8899-aabbccddeeff")
    with pytest.raises(Unreachable, match="too slowly"):
        registry.id_of("00112233-4455-6677-8899-aabbccddeeff", deadline=time.monotonic() - 1)


@pytest.mark.parametrize(
    ("references", "message"),
    [
        # A chain, a fan-out and a cycle.
        (lambda i: {f"s{i + 1}": f"s{i + 1}"}, "refers to more than"),
        (lambda i: {f"s{n}": f"s{n}" for n in range(1, 1_000)} if i == 0 else {}, "refers to more than"),
        (lambda i: {f"s{(i + 1) % 3}": f"s{(i + 1) % 3}"}, "refers to itself"),
    ],
)
def test_by_id_endless_references_are_refused(server, registry, references, message):
    for i in range(1_000):
        server.add(i, "{}", f"s{i}", references=references(i))
    with pytest.raises(SchemaError, match=message):
        registry.by_id(0)
    with pytest.raises(SchemaError, match=message):
        registry.versions("s0")
    # The id, the list of versions and one version, and the references of the latter two.
    assert len(server.requests) <= 3 + 2 * MAX_REFERENCES


def test_by_id_references_above_size_are_refused(server, registry):
    for i in range(10):
        server.add(i, "x" * (MAX_CHARACTERS // 4), f"s{i}", references={f"s{i + 1}": f"s{i + 1}"})
    with pytest.raises(SchemaError, match=f"more than {MAX_CHARACTERS:,}"):
        registry.by_id(0)
    assert len(server.requests) <= 5


def test_not_found_ids_are_cached_until_found_or_expired(server, registry, monkeypatch):
    server.add(7, "{}")
    assert [registry.by_id(id_) for id_ in (8, 9)] == [None, None]
    assert registry.by_id(7)
    assert registry.not_found() == {8, 9}

    server.add(9, "{}")
    assert registry.by_id(9)
    assert server.asked_ids == [8, 9, 7, 9]

    monkeypatch.setattr(schema_registry, "NOT_FOUND_SECONDS", 0)
    assert registry.not_found() == frozenset()


def test_not_found_cache_is_bounded(registry, monkeypatch):
    monkeypatch.setattr(schema_registry, "MAX_NOT_FOUND", 3)
    for id_ in range(6):
        registry.by_id(id_)
    assert registry.not_found() == {3, 4, 5}


@pytest.mark.parametrize("status", [401, 403, 500, 503])
def test_by_id_error_is_not_cached_as_not_found(server, registry, status):
    server.status = status
    with pytest.raises(LakehouseError):
        registry.by_id(1)
    assert registry.not_found() == frozenset()


def test_by_id_after_deadline_sends_no_request(server, registry):
    with pytest.raises(Unreachable, match="too slowly"):
        registry.by_id(1, deadline=time.monotonic() - 1)
    assert server.requests == []
    assert registry.not_found() == frozenset()


@pytest.mark.parametrize("after", [1, 2, 3, 4])
def test_resolve_schemas_concurrent_rename_stays_a_rename(server, registry, after):
    """A version between two requests must not come before an older one, which would turn its rename into a drop."""
    versions = {
        1: '{"type": "record", "name": "Trade", "fields": [{"name": "price", "type": "int"}]}',
        2: '{"type": "record", "name": "Trade", "fields": [{"name": "cents", "type": "long", "aliases": ["price"]}]}',
    }
    server.add(1, versions[1], "trades-value")

    def register_another(path):
        if len(server.requests) == after:
            server.add(2, versions[2], "trades-value")

    server.after = register_another
    topic = Topic(name="trades")
    first = resolve_schemas(registry, topic)
    table = assign_fresh_schema_ids(Schema(*first.struct.fields))
    second = resolve_schemas(registry, topic)

    names = {(1,): ["price"], (1, 2): ["cents"]}
    for schemas in (first, second):
        ids = tuple(version.id for version in schemas.value.versions)
        assert [field.name for field in schemas.struct.fields] == names[ids]
    rules = {change.rule for change in evolution.changes(table, second.value.shape)}
    assert rules == ({"FIELD_RENAMED", "TYPE_WIDENED"} if first.struct != second.struct else set())


@pytest.mark.parametrize(
    ("value_format", "type_", "text"),
    [
        ("avro", "AVRO", '{"type": "record", "name": "Trade", "fields": [{"name": "price", "type": "int"}]}'),
        ("json_schema", "JSON", '{"title": "Trade", "properties": {"price": {"type": "integer"}}}'),
        ("protobuf", "PROTOBUF", 'syntax = "proto3"; message Trade { int32 price = 1; }'),
    ],
)
def test_resolve_schemas_record_of_no_version_is_refused(server, registry, value_format, type_, text):
    server.add(1, text, "trades-value", type_)
    with pytest.raises(SchemaError, match="'trades-value' describes the record type 'Trad'.*Correct 'record'"):
        resolve_schemas(registry, Topic(name="trades", value_format=value_format, record="Trad"))


def test_resolve_schemas_record_of_invalid_schema_names_the_cause(server, registry):
    server.add(1, 'syntax = "proto3"; message Trade { int32 price = ; }', "trades-value", "PROTOBUF")
    with pytest.raises(SchemaError, match="line 1, column 50: Expected field number"):
        resolve_schemas(registry, Topic(name="trades", value_format="protobuf", record="Trade"))


def test_versions_schema_registered_again_is_newest(server, registry):
    for id_ in (1, 2, 1):
        server.add(id_, f"schema {id_}", "trades-value")
    assert [version.id for version in registry.versions("trades-value")] == [2, 1]
    assert registry.versions("never-registered") == []


@pytest.mark.parametrize("request_", [lambda registry: registry.versions("orders-value"), lambda one: one.by_id(7)])
def test_address_of_another_path_is_no_registry(server, request_):
    registry = SchemaRegistry(url=f"{server.address}/api")
    with pytest.raises(LakehouseError, match=f"{server.address}/api is not the address of a schema registry"):
        request_(registry)
    assert registry.not_found() == frozenset()


@pytest.mark.parametrize("status", [401, 403])
def test_refused_login_is_not_an_outage(server, registry, status):
    server.status = status
    with pytest.raises(RequestRejected, match=rf"refused the login \(HTTP {status}\): as the test asked"):
        registry.versions("orders-value")
