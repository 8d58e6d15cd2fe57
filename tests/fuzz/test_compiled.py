"""Generated Avro records: each row that the compiled decoder makes has exactly the expected values, and what its tasks
call a dead letter is one."""

from functools import partial

import pytest

from tests.fuzz.test_fuzz import EXAMPLES, SUITES, run, seeds
from tests.support.fuzz.checking import COUNTS
from tests.support.fuzz.compiled import CompiledDecoder

pytest.importorskip("lakehouse_native")

AVRO_SUITES = [name for name in SUITES if name.startswith("avro")]


@pytest.mark.parametrize("suite", AVRO_SUITES)
def test_row_of_the_compiled_decoder_is_exact(suite):
    before = COUNTS["exact"]
    for number in seeds():
        try:
            run(suite, number, partial(SUITES[suite][1], CompiledDecoder()))
        except Exception as error:
            error.add_note(f"Run it again with: make fuzz SEED={number} ONLY=row_of_the_compiled_decoder and {suite}")
            raise
    assert COUNTS["exact"] - before > EXAMPLES[SUITES[suite][1]]
