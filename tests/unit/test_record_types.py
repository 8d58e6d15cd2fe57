"""Record types of schemas registered under other subjects."""

import json

import pytest

from lakehouse import formats
from lakehouse.formats.schema import RegisteredSchema


def avro(name, **attributes):
    fields = [{"name": "id", "type": "string"}]
    return RegisteredSchema(1, json.dumps({"type": "record", "name": name, "fields": fields} | attributes))


def protobuf(*messages):
    text = "".join(f"message {name} {{ string id = 1; }}" for name in messages)
    return RegisteredSchema(1, f'syntax = "proto3"; package shop; {text}', "PROTOBUF")


def json_schema(**keywords):
    return RegisteredSchema(1, json.dumps({"type": "object"} | keywords), "JSON")


ORDER = avro("Order", namespace="shop", aliases=["Purchase", "old.Order"])


@pytest.mark.parametrize(
    ("schema", "versions", "is_same"),
    [
        (avro("shop.Order"), [ORDER], True),
        (avro("Order", namespace="shop", doc="elsewhere"), [ORDER], True),
        (avro("Order"), [ORDER], False),
        (avro("other.Order"), [ORDER], False),
        (avro("Invoice", namespace="shop"), [ORDER], False),
        (avro("shop.Purchase"), [ORDER], True),
        (avro("old.Order"), [ORDER], True),
        (avro("shop.Sale"), [avro("shop.Sale"), ORDER], True),
        (avro("shop.Sale", aliases=["shop.Order"]), [ORDER], False),
        (protobuf("Order"), [protobuf("Order")], True),
        (protobuf("Order", "Line"), [protobuf("Order")], True),
        (protobuf("Invoice"), [protobuf("Order")], False),
        (json_schema(title="Order"), [json_schema(title="Order", description="x")], True),
        (json_schema(title="Invoice"), [json_schema(title="Order")], False),
        (json_schema(), [json_schema()], False),
        (avro("Order"), [json_schema(title="Order")], False),
    ],
)
def test_is_same_compares_full_name_and_aliases(schema, versions, is_same):
    assert formats.is_same(schema, versions) is is_same


@pytest.mark.parametrize(
    ("schema", "record", "is_named"),
    [
        (ORDER, "shop.Order", True),
        (ORDER, "Order", True),
        (ORDER, "other.Order", False),
        (protobuf("Order", "Line"), "shop.Line", True),
        (protobuf("Order"), "Order", False),
        (json_schema(title="Order"), "Order", True),
        (json_schema(title="a.Order"), "Order", False),
        (RegisteredSchema(1, '"string"'), "Order", False),
    ],
)
def test_is_named_compares_configured_record_name(schema, record, is_named):
    assert formats.is_named(schema, record) is is_named
