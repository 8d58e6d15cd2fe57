"""Generated schemas and records of every format: each value is decoded exactly or refused.

`make fuzz` runs fixed seeds, `make fuzz MINUTES=20` fresh ones, and `make fuzz SEED=7` one seed. Hypothesis shrinks
a failing case to the smallest schema and record that it finds.
"""

import os
import secrets
import time
from functools import partial

import pytest
from hypothesis import HealthCheck, given, seed, settings

from tests.fuzz.test_types_doc import rows
from tests.support.fuzz import (
    avro_model,
    avro_pairs,
    avro_serialized,
    change_events,
    json_compositions,
    json_model,
    json_pairs,
    json_serialized,
    protobuf_model,
    protobuf_pairs,
    protobuf_serialized,
)
from tests.support.fuzz.checking import check, check_pair
from tests.support.fuzz.model import Pair

SUITES = {
    "avro": (avro_model.cases(), check),
    "json_schema": (json_model.cases(), check),
    "protobuf": (protobuf_model.cases(), check),
    "json_schema_compositions": (json_compositions.compositions(), json_compositions.check_composition),
    "avro_serialized": (avro_serialized.cases(), check),
    "json_schema_serialized": (json_serialized.cases(), check),
    "protobuf_serialized": (protobuf_serialized.cases(), check),
    "change_events": (change_events.cases(), check),
    "avro_versions": (avro_pairs.pairs(), check_pair),
    "json_schema_versions": (json_pairs.pairs(), check_pair),
    "protobuf_versions": (protobuf_pairs.pairs(), check_pair),
}
FIXED_SEEDS = (1,)
EXAMPLES = {check: 32, json_compositions.check_composition: 20, check_pair: 20}
"""The number of cases of a seed and suite, by their check."""


def seeds():
    """Yield the seeds of a suite: the given one, the fixed ones, or fresh ones for the suite's share of the time."""
    if "FUZZ_SEED" in os.environ:
        yield int(os.environ["FUZZ_SEED"])
        return
    if "FUZZ_MINUTES" not in os.environ:
        yield from FIXED_SEEDS
        return
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    end = time.monotonic() + float(os.environ["FUZZ_MINUTES"]) * 60 * processes / len(SUITES)
    while time.monotonic() < end:
        yield secrets.randbelow(10**9)


def run(suite, number, checked):
    """Generate the cases of one seed of a suite, and check each."""
    strategy, check_ = SUITES[suite]

    @seed(number)
    @settings(
        max_examples=EXAMPLES[check_],
        deadline=None,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
    @given(strategy)
    def test(case):
        checked(case)

    test()


@pytest.mark.parametrize("suite", SUITES)
def test_generated_value_is_decoded_exactly_or_refused(suite, decoder):
    for number in seeds():
        try:
            run(suite, number, partial(SUITES[suite][1], decoder))
        except Exception as error:
            error.add_note(f"Run it again with: make fuzz SEED={number} ONLY={suite}")
            raise


NOT_GENERATED = {
    "Avro": {
        "a record that contains itself",
        "`null` alone",
        "`doc`",
        "a record without fields",
    },
    "JSON Schema": {
        "`default`",
        "not registered (`value_format: json`)",
        'a keyword of a wrong type, such as `"required": "a"`',
    },
    "Protobuf": {
        "imports",
        "message in itself, groups, declared extensions, `edition`",
        "unknown fields",
    },
    "plain": {"`string`", "`int`, `long`", "`bytes`"},
}
"""Rows of docs/types.md without values of a registered type; test_types_doc has an example of each."""
FORMATS = {"json": "JSON Schema", "avro": "Avro", "json_schema": "JSON Schema", "protobuf": "Protobuf"}


def test_generated_cases_cover_documented_rows():
    expected = {row for row in rows() if row[1] not in NOT_GENERATED[row[0]]}
    generated = set()

    def note(case):
        newest = case.after if isinstance(case, Pair) else case
        generated.update((FORMATS[newest.format], row) for row in newest.rows)

    # The cases of a seed depend on constants in the code (Hypothesis), so that a single seed may miss a row.
    for number in range(1, 11):
        for suite in SUITES:
            run(suite, number, note)
        if expected <= generated:
            break
    assert expected <= generated <= set(rows())
