"""Decoding of Avro records by the compiled decoder, without servers."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.core.errors import LakehouseError
from spark.native import plan
from spark.native.letters import explainers_of, reason_of
from spark.native.plan import Unsupported
from tests.support.fuzz.cells import of_iceberg, plain
from tests.support.fuzz.decoding import LEFT, LETTER, Decoded, columns, instructions
from tests.support.fuzz.model import METADATA_NAMES, Case


class CompiledDecoder:
    """The compiled decoder, with the interface of `Decoder`."""

    def decode(self, cases: Sequence[Case]) -> list[Decoded | LakehouseError]:
        """Decode the records of some cases; of a case whose schema is refused, return the error."""
        return [self._decode(case) for case in cases]

    def _decode(self, case: Case) -> Decoded | LakehouseError:
        import lakehouse_native

        try:
            known, schema = columns(case)
        except LakehouseError as error:
            return error
        decoding: Any = instructions(known)
        types = {field.name: of_iceberg(field.field_type) for field in schema.fields}
        types = {name: type_ for name, type_ in types.items() if name not in METADATA_NAMES}
        outcomes: list[dict[str, Any] | str] = [LEFT] * len(case.records)
        try:
            layout = plan.layout(decoding.value.writers, decoding.value.reader, schema, decoding.metadata)
        except Unsupported:
            return Decoded(types, outcomes)
        files, left = lakehouse_native.decide_values(json.dumps(layout), [record.value for record in case.records])
        table = pq.read_table(io.BytesIO(files[0][1])) if files else pa.table({"kafka_offset": []})
        for place, offset in enumerate(table["kafka_offset"].to_pylist()):
            outcomes[offset] = {name: plain(table[name][place]) for name in types}
        assert [n for n, outcome in enumerate(outcomes) if outcome == LEFT] == left
        explainers = explainers_of(decoding)
        for n in left:
            if reason_of({"value": case.records[n].value, "headers": None}, explainers):
                outcomes[n] = LETTER
        return Decoded(types, outcomes)
