"""Records with schema ids of other subjects: lookups of a batch are limited, and no record is decoded by a guess."""

import json

import pytest

from lakehouse.core.errors import BadRecords, LakehouseError
from lakehouse.pipeline.redrive import Redriven, redrive
from lakehouse.pipeline.replay import replay
from resources import schema_registry
from tests.support.registry_stream import RegistryStream
from tests.support.servers.registry_server import RegistryServer
from tests.support.topics import TRADES, framed, trade

OWN, LATE, COMMON = 1, 2, 3
LOOKUPS = 64
JUNK = range(1_000, 1_100)
FOREIGN = json.dumps({**json.loads(TRADES), "doc": "The same, registered elsewhere"})


class ForeignStream(RegistryStream):
    """A stream whose registry has the schema of its values."""

    def listen(self, registry):
        super().listen(registry)
        registry.add(OWN, TRADES, f"{self.name}-value")

    def flood(self):
        """Produce records with COMMON most often, each id of JUNK twice, and LATE once."""
        ids = [*JUNK] * 2 + [COMMON] * 5 + [LATE]
        self.produce([{"value": framed(id_, TRADES, trade(n))} for n, id_ in enumerate(ids)])

    def reasons(self):
        letters = self.dead_letters()
        return {id_: {x["error_reason"] for x in letters if x["schema_id"] == id_} for id_ in (COMMON, LATE, *JUNK)}


@pytest.fixture
def create_stream(resources):
    def make(**settings):
        stream = ForeignStream(resources, partitions=1, settings=settings)
        stream.listen(server)
        return stream

    with RegistryServer().listening() as server:
        yield make


def test_ingest_many_ids_limits_lookups_and_redrive_recovers(create_stream, monkeypatch):
    # On a slow machine too, the second batch is ingested within that time.
    monkeypatch.setattr(schema_registry, "NOT_FOUND_SECONDS", 3_600)
    stream = create_stream()
    stream.registry.add(COMMON, FOREIGN)
    stream.registry.add(LATE, FOREIGN)
    stream.flood()

    [published] = stream.ingest()

    asked_ids = stream.registry.asked_ids
    assert len(asked_ids) == len(set(asked_ids)) == LOOKUPS
    assert asked_ids[0] == COMMON
    assert {row["kafka_schema_id"] for row in stream.rows()} == {COMMON}
    assert published.counts.dead_letters == 2 * len(JUNK) + 1
    looked_up = {id_: {"unknown_schema"} for id_ in asked_ids[1:]}
    assert stream.reasons() == {id_: {"schema_limit"} for id_ in (LATE, *JUNK)} | looked_up | {COMMON: set()}

    # Responses are cached for a while, so that other ids are looked up.
    stream.flood()
    stream.ingest()
    second = stream.registry.asked_ids[LOOKUPS:]
    assert set(second) & set(asked_ids) == {COMMON}
    assert len(second) == 1 + 1 + len(JUNK) - (LOOKUPS - 1)

    waiting = len(stream.dead_letters())
    assert redrive(stream.namespace, stream.topic, stream.systems) == Redriven(attempted=waiting, recovered=1)
    assert {row["kafka_schema_id"] for row in stream.rows()} == {COMMON, LATE}


@pytest.mark.parametrize("policy", ["suspend", "skip"])
def test_ingest_without_dead_letters_caches_no_missing_schema(create_stream, policy):
    stream = create_stream(errors=policy)
    stream.produce([{"value": framed(LATE, TRADES, trade(1))}])
    if policy == "suspend":
        with pytest.raises(BadRecords, match="registry has no schema"):
            stream.ingest()
        expected = 1
    else:
        assert [published.counts.skipped for published in stream.ingest()] == [1]
        expected = 0
    stream.registry.add(LATE, FOREIGN)
    stream.produce([{"value": framed(LATE, TRADES, trade(2))}])

    stream.ingest()

    assert len(stream.rows()) == expected + 1


def test_ingest_many_ids_without_dead_letters_stops(create_stream):
    stream = create_stream(errors="suspend")
    stream.registry.add(COMMON, FOREIGN)
    stream.flood()

    with pytest.raises(BadRecords):
        stream.ingest()

    assert stream.rows() == []
    assert len(stream.registry.asked_ids) == LOOKUPS


def test_replay_too_many_ids_is_refused(create_stream, monkeypatch):
    from lakehouse.pipeline.schemas import foreign_writers

    stream = create_stream()
    stream.flood()
    stream.ingest()
    monkeypatch.setattr(foreign_writers, "BY_HAND", foreign_writers.Lookup(10, 60))

    with pytest.raises(LakehouseError, match="smaller range"):
        replay(stream.namespace, stream.topic, stream.systems, "earliest")


def doubling(levels):
    """Return the schema of nested records, each with two fields of the next record."""
    schema = {"type": "record", "name": f"R{levels}", "fields": [{"name": "s", "type": "string"}]}
    for i in reversed(range(levels)):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"R{i + 1}"}]
        schema = {"type": "record", "name": f"R{i}", "fields": fields}
    return json.dumps(schema)


def test_ingest_invalid_foreign_schemas_are_dead_letters(create_stream):
    stream = create_stream()
    references = {id_: f"chain-{id_ + 1}" for id_ in range(500, 900)}
    for id_, next_ in references.items():
        stream.registry.add(id_, TRADES, f"chain-{id_}", references={next_: next_})
    bad = {
        10: stream.registry.add(10, doubling(30)),
        11: stream.registry.add(11, json.dumps("string")),
        12: stream.registry.add(12, 'syntax = "proto3"; message A { int64 a = 1; }', type_="PROTOBUF"),
        13: stream.registry.add(
            13, json.dumps({**json.loads(TRADES), "fields": [{"name": "a", "type": "int", "doc": 5}]})
        ),
        14: 500,
    }
    values = [framed(id_, TRADES, trade(n)) for n, id_ in enumerate([*bad.values(), OWN])]
    stream.produce([{"value": value} for value in values])

    [published] = stream.ingest()

    assert (published.counts.rows, published.counts.dead_letters) == (1, len(bad))
    assert {letter["error_reason"] for letter in stream.dead_letters()} == {"unknown_schema"}


def test_ingest_foreign_values_without_place_are_dead_letters(create_stream):
    def schema(symbols, *added):
        side = {"type": "enum", "name": "side", "symbols": symbols, "default": "BUY"}
        fields = [{"name": "userid", "type": "string"}, {"name": "side", "type": side}, *added]
        return json.dumps({"type": "record", "name": "deal", "fields": fields})

    stream = create_stream(key=[])
    stream.registry.subjects.clear()
    stream.registry.add(40, schema(["BUY", "SELL"]), f"{stream.name}-value")
    stream.registry.add(41, schema(["BUY", "SELL", "SHORT"]))
    stream.registry.add(42, schema(["BUY"], {"name": "note", "type": ["null", "string"]}))
    sent = [(40, "SELL"), (41, "SELL"), (41, "SHORT"), (42, "BUY")]
    texts = {id_: stream.client.by_id(id_).text for id_ in (40, 41, 42)}
    records = [{"userid": f"{id_} {side}", "side": side, "note": "x"} for id_, side in sent]
    stream.produce([{"value": framed(id_, texts[id_], record)} for (id_, _), record in zip(sent, records, strict=True)])

    stream.ingest()

    assert [(row["userid"], row["side"]) for row in stream.rows()] == [("40 SELL", "SELL"), ("41 SELL", "SELL")]
    letters = [(x["schema_id"], x["error_reason"], x["error_message"]) for x in stream.dead_letters()]
    assert [letter[:2] for letter in letters] == [(41, "undecodable"), (42, "unfit_schema")]
    assert "does not have the symbol" in letters[0][2] and "no column for its field 'note'" in letters[1][2]


def test_ingest_key_with_foreign_schema_is_decoded(create_stream):
    key = '{"type": "record", "name": "Key", "fields": [{"name": "userid", "type": "string"}]}'
    stream = create_stream(mode="upsert", key_format="avro")
    stream.registry.add(5, key, f"{stream.name}-key")
    elsewhere = json.dumps({**json.loads(key), "doc": "The same, registered elsewhere"})
    stream.registry.add(6, elsewhere)
    users = {5: "own", 6: "foreign", 7: "unknown"}
    stream.produce(
        [
            {"key": framed(id_, key, {"userid": user}), "value": framed(OWN, TRADES, trade(id_, userid=user))}
            for id_, user in users.items()
        ]
        + [{"key": framed(6, elsewhere, {"userid": "own"}), "value": None}]
    )

    stream.ingest()

    assert [row["userid"] for row in stream.rows()] == ["foreign"]
    assert [letter["error_reason"] for letter in stream.dead_letters()] == ["bad_key"]


def test_ingest_foreign_key_with_other_field_deletes_no_row(create_stream):
    key = json.dumps({"type": "record", "name": "Key", "fields": [{"name": "userid", "type": "string"}]})
    fields = [*json.loads(key)["fields"], {"name": "region", "type": ["null", "string"], "default": None}]
    wider = json.dumps(json.loads(key) | {"fields": fields})
    stream = create_stream(mode="upsert", key_format="avro")
    stream.registry.add(5, key, f"{stream.name}-key")
    stream.registry.add(6, wider)
    stream.produce(
        [
            {"key": framed(5, key, {"userid": "a"}), "value": framed(OWN, TRADES, trade(1, userid="a"))},
            {"key": framed(6, wider, {"userid": "a", "region": "north"}), "value": None},
        ]
    )

    stream.ingest()

    assert [row["userid"] for row in stream.rows()] == ["a"]
    assert [letter["error_reason"] for letter in stream.dead_letters()] == ["bad_key"]


def test_ingest_record_of_other_type_is_dead_letter(create_stream):
    invoice = json.dumps({**json.loads(TRADES), "name": "Invoice", "doc": "The same fields"})
    stream = create_stream()
    stream.registry.add(20, invoice)
    stream.produce([{"value": framed(id_, TRADES, trade(n))} for n, id_ in enumerate([20, OWN])])

    [published] = stream.ingest()

    assert (published.counts.rows, published.counts.dead_letters) == (1, 1)
    assert [(x["schema_id"], x["error_reason"]) for x in stream.dead_letters()] == [(20, "other_type")]


def test_ingest_foreign_json_is_matched_by_title_or_past_subject(create_stream):
    def schema(**keywords):
        return json.dumps({"type": "object", "properties": {"userid": {"type": "string"}}} | keywords)

    stream = create_stream(key=[], value_format="json_schema")
    stream.registry.subjects.clear()
    stream.registry.add(30, schema(title="Order"), f"{stream.name}-value", type_="JSON")
    for id_, title in {31: "Order", 32: "Invoice", 33: "", 34: ""}.items():
        stream.registry.add(id_, schema(title=title), type_="JSON")
    stream.registry.deleted[34] = [f"{stream.name}-value"]
    frames = {id_: b"\x00" + id_.to_bytes(4, "big") for id_ in range(30, 35)}
    stream.produce([{"value": frame + json.dumps({"userid": str(id_)}).encode()} for id_, frame in frames.items()])

    stream.ingest()

    assert [row["userid"] for row in stream.rows()] == ["30", "31", "34"]
    assert [(x["schema_id"], x["error_reason"]) for x in stream.dead_letters()] == [
        (32, "other_type"),
        (33, "other_type"),
    ]
