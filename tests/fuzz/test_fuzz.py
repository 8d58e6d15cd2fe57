"""Generated schemas and records of every format: each value arrives as it was sent, or is refused.

`make fuzz` runs fixed seeds, `make fuzz MINUTES=20` fresh ones, and `make fuzz SEED=7` one seed. Hypothesis shrinks
what fails to the smallest schema and record that it finds.
"""

import os
import secrets
import time

import avro_model
import avro_pairs
import json_model
import json_pairs
import protobuf_model
import protobuf_pairs
import pytest
from checking import ROWS, check, check_pair
from hypothesis import HealthCheck, given, seed, settings
from test_types_doc import rows

SUITES = {
    "avro": (avro_model.cases(), check),
    "json_schema": (json_model.cases(), check),
    "protobuf": (protobuf_model.cases(), check),
    "avro_versions": (avro_pairs.pairs(), check_pair),
    "json_schema_versions": (json_pairs.pairs(), check_pair),
    "protobuf_versions": (protobuf_pairs.pairs(), check_pair),
}
FIXED_SEEDS = (1,)
EXAMPLES = {check: 25, check_pair: 12}
"""Cases of one seed and suite, by what is done with each."""


def seeds():
    """The seeds of one suite: one by name, fixed ones, or fresh ones until the suite's share of the time is over."""
    if "FUZZ_SEED" in os.environ:
        yield int(os.environ["FUZZ_SEED"])
        return
    if "FUZZ_MINUTES" not in os.environ:
        yield from FIXED_SEEDS
        return
    end = time.monotonic() + float(os.environ["FUZZ_MINUTES"]) * 60 / len(SUITES)
    while time.monotonic() < end:
        yield secrets.randbelow(10**9)


@pytest.mark.parametrize("suite", SUITES)
def test_every_value_arrives_as_it_was_sent_or_is_refused(suite, decoder):
    strategy, checked = SUITES[suite]
    for number in seeds():

        @seed(number)
        @settings(
            max_examples=EXAMPLES[checked],
            deadline=None,
            database=None,
            print_blob=False,
            report_multiple_bugs=False,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
        )
        @given(strategy)
        def run(case):
            checked(decoder, case)

        try:
            run()
        except Exception as error:
            error.add_note(f"Run it again with: make fuzz SEED={number} ONLY={suite}")
            raise


NOT_GENERATED = {
    "Avro": {
        "a record that contains itself",
        "`null` alone",
        "a named type of another subject",
        "`doc`",
        "a record without fields",
        "`default`",
        "`aliases`, a name that changes by upper and lower case only",
    },
    "JSON Schema": {"`default`", "not registered (`value_format: json`)"},
    "Protobuf": {
        "imports",
        "message in itself, groups, message without fields, `edition`",
        "unknown fields",
        "`required` (proto2)",
    },
    "plain": {"`string`", "`int`, `long`", "`bytes`"},
}
"""Rows of docs/types.md that say nothing about a value of a registered type, or that few cases have:
test_types_doc has an example of each."""
FORMATS = {"avro": "Avro", "json_schema": "JSON Schema", "protobuf": "Protobuf"}


def test_the_fixed_seeds_generate_an_example_of_each_row():
    wanted = {row for row in rows() if row[1] not in NOT_GENERATED[row[0]]}
    assert wanted <= {(FORMATS[format_], row) for format_, row in ROWS} <= set(rows())
