#!/usr/bin/env bash
# Apache Avro for Python writes a decimal that has fewer fractional digits than its schema as another number.
#
# Versions: avro 1.12.2; fastavro 1.13.1 as the control.
# Input:    Decimal("1.2") and Decimal("5") for the logical type decimal with precision 4 and scale 2, on bytes and on
#           fixed.
# Seen:     avro writes the unscaled values 12 and 5, so that both libraries read 0.12 and 0.05. fastavro writes 120 and
#           500 and reads 1.20 and 5.00. 12.34 is the same in both. avro raises an error only for too many digits.
# Expected: 1.20 and 5.00. In the Avro specification ("Logical Types", "Decimal") the scale is that of the schema, and
#           the bytes hold the unscaled value for it.
# Matters:  a price of 5 arrives as 0.05, since Decimal("5") has no fractional digits, and no consumer can notice.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  avro==1.12.2 fastavro==1.13.1
"$folder/venv/bin/python" -B -W ignore - "$folder" <<'PYTHON'
import io
import json
import sys
from decimal import Decimal

import avro.io
import avro.schema
import fastavro

logical = {"logicalType": "decimal", "precision": 4, "scale": 2}
types = {"bytes": {"type": "bytes", **logical}, "fixed": {"type": "fixed", "name": "Price", "size": 4, **logical}}
values = [Decimal("12.34"), Decimal("1.2"), Decimal("5")]
seen = {}
for kind, schema in types.items():
    record = {"type": "record", "name": "Order", "fields": [{"name": "price", "type": schema}]}
    parsed, fast = avro.schema.parse(json.dumps(record)), fastavro.parse_schema(record)
    for value in values:
        by_avro, by_fastavro = io.BytesIO(), io.BytesIO()
        avro.io.DatumWriter(parsed).write({"price": value}, avro.io.BinaryEncoder(by_avro))
        fastavro.schemaless_writer(by_fastavro, fast, {"price": value})
        by_avro.seek(0)
        read_by_avro = avro.io.DatumReader(parsed).read(avro.io.BinaryDecoder(by_avro))["price"]
        read_by_fastavro = [
            fastavro.schemaless_reader(io.BytesIO(file.getvalue()), fast)["price"] for file in (by_avro, by_fastavro)
        ]
        seen[kind, str(value)] = [str(number) for number in (read_by_avro, *read_by_fastavro)]
        print(f"{kind} {value}: avro writes {by_avro.getvalue().hex()}, read by avro as {read_by_avro} and by fastavro"
              f" as {read_by_fastavro[0]}; fastavro writes {by_fastavro.getvalue().hex()}, {read_by_fastavro[1]}")
expected = {"12.34": ["12.34"] * 3, "1.2": ["0.12", "0.12", "1.20"], "5": ["0.05", "0.05", "5.00"]}
if seen != {(kind, value): read for kind in types for value, read in expected.items()}:
    sys.exit("The behaviour changed.")
PYTHON
