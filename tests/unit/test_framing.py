"""Confluent's wire format."""

import struct

import pytest

from lakehouse.formats.schema import FRAME_BYTES, frame, schema_id


@pytest.mark.parametrize("id_", [0, 1, 255, 256, 100_001, 2**31 - 1])
def test_schema_id_of_frame_is_returned(id_):
    assert frame(id_) == struct.pack(">bI", 0, id_) and len(frame(id_)) == FRAME_BYTES
    assert schema_id(frame(id_)) == schema_id(frame(id_) + b"body") == id_


@pytest.mark.parametrize("message", [b"", b"\x00", frame(7)[:-1], b"\x01" + frame(7)[1:], b"text that is long enough"])
def test_schema_id_of_other_message_is_none(message):
    assert schema_id(message) is None
