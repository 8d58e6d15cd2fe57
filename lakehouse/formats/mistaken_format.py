"""Values of another format than their topic declares, as messages about records that cannot be decoded name it."""

import json

from lakehouse.formats.avro.avro_format import AvroFormat
from lakehouse.formats.json.json_format import JsonFormat
from lakehouse.formats.schema import schema_id


def frame_fault(data: bytes) -> str | None:
    """Return that a value which should be text begins with the id of a schema; None if it does not."""
    if (id_ := schema_id(data)) is None:
        return None
    return (
        f"it begins with a zero byte and the schema id {id_}, and is no text: write 'value_format: {AvroFormat.name}', "
        f"or the format of that schema"
    )


def document_fault(data: bytes) -> str | None:
    """Return that a value without a schema id is the text of a JSON object or list; None if it is not."""
    try:
        is_document = data.lstrip()[:1] in (b"{", b"[") and json.loads(data.decode()) is not None
    except (ValueError, RecursionError):
        return None
    return f"it is JSON text: write 'value_format: {JsonFormat.name}'" if is_document else None
