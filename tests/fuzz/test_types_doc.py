"""Examples of each row of the table in docs/types.md, which are decoded."""

import re

import pytest

from tests.support.fuzz.avro_examples import EXAMPLES as AVRO
from tests.support.fuzz.checking import compare
from tests.support.fuzz.decoding import columns
from tests.support.fuzz.json_examples import EXAMPLES as JSON
from tests.support.fuzz.json_examples import PLAIN
from tests.support.fuzz.protobuf_examples import EXAMPLES as PROTOBUF
from tools.repository import PROJECT

EXAMPLES = {"Avro": AVRO, "JSON Schema": JSON, "Protobuf": PROTOBUF, "plain": PLAIN}


def rows():
    """Return the cells below `column` in the table, by format and type."""
    text = (PROJECT / "docs/types.md").read_text()
    table = text.partition("| --- | --- | --- | --- |\n")[2].partition("\n\n")[0]
    # The split is correct because no cell contains a bar.
    cells = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines())
    return {(format_, type_): column for format_, type_, column, _ in cells}


def test_documented_rows_and_examples_correspond():
    assert {(format_, type_) for format_, examples in EXAMPLES.items() for type_ in examples} == set(rows())


def type_name(column):
    """Return the name of a column's type in the table."""
    return column[0] if isinstance(column, tuple) else column


@pytest.mark.parametrize(("format_", "type_"), [(f, t) for f, examples in EXAMPLES.items() for t in examples])
def test_example_has_documented_column(format_, type_):
    example, documented = EXAMPLES[format_][type_], rows()[format_, type_]
    actual = {
        type_name(column) for case in example.cases if case.refused is None for column in (case.columns or {}).values()
    }
    if example.says is not None:
        assert documented == example.says
        return
    # Only the type is compared: digits of `decimal(P, S)` and elements of structs, lists and maps are in the examples.
    types = [re.sub(r"[<(].*", "", name) for name in re.findall(r"`([^`]+)`", documented)]
    assert {re.sub(r"\(.*", "", name) for name in actual} == set(types)


@pytest.mark.parametrize("format_", list(EXAMPLES))
def test_example_has_documented_values(format_, decoder):
    cases = [(type_, case) for type_, example in EXAMPLES[format_].items() for case in example.cases]
    failures = []
    for (type_, case), decoded in zip(cases, decoder.decode([case for _, case in cases]), strict=True):
        try:
            compare(case, decoded)
        except AssertionError as error:
            schema = case.versions[-1].text if case.versions else case.format
            failures.append(f"{type_}: {error}\n    {schema}")
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize(
    ("format_", "type_"), [(f, t) for f, examples in EXAMPLES.items() for t in examples if examples[t].comment]
)
def test_example_has_documented_comment(format_, type_):
    example = EXAMPLES[format_][type_]
    [field] = [field for field in columns(example.cases[0])[1].fields if field.name == "x"]
    assert field.doc == example.comment
