"""Each row of the table in docs/types.md, as records that are decoded."""

import re

import pytest
from avro_examples import EXAMPLES as AVRO
from checking import compare
from decoding import columns
from json_examples import EXAMPLES as JSON
from json_examples import PLAIN
from protobuf_examples import EXAMPLES as PROTOBUF

from lakehouse.config.loader import PROJECT

EXAMPLES = {"Avro": AVRO, "JSON Schema": JSON, "Protobuf": PROTOBUF, "plain": PLAIN}


def rows():
    """The table: what stands under `column`, by format and type."""
    text = (PROJECT / "docs/types.md").read_text()
    table = text.partition("| --- | --- | --- | --- |\n")[2].partition("\n\n")[0]
    # A bar within a cell would have to be escaped; no type has one.
    cells = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines())
    return {(format_, type_): column for format_, type_, column, _ in cells}


def test_each_row_of_the_table_has_an_example_and_each_example_a_row():
    assert {(format_, type_) for format_, of in EXAMPLES.items() for type_ in of} == set(rows())


def named(column):
    """What a table of types calls a column's type."""
    return column[0] if isinstance(column, tuple) else column


@pytest.mark.parametrize(("format_", "type_"), [(f, t) for f, of in EXAMPLES.items() for t in of])
def test_the_column_of_each_example_is_the_rows(format_, type_):
    example, said = EXAMPLES[format_][type_], rows()[format_, type_]
    found = {
        named(column) for case in example.cases if case.refused is None for column in (case.columns or {}).values()
    }
    if example.says is not None:
        assert said == example.says
        return
    # `decimal(P, S)` is of any digits; what a struct, a list or a map holds, an example says.
    types = [re.sub(r"[<(].*", "", name) for name in re.findall(r"`([^`]+)`", said)]
    assert {re.sub(r"\(.*", "", name) for name in found} == set(types)


@pytest.mark.parametrize("format_", list(EXAMPLES))
def test_each_row_of_the_table_is_true(format_, decoder):
    cases = [(type_, case) for type_, example in EXAMPLES[format_].items() for case in example.cases]
    wrong = []
    for (type_, case), decoded in zip(cases, decoder.decode([case for _, case in cases]), strict=True):
        try:
            compare(case, decoded)
        except AssertionError as error:
            schema = case.versions[-1].text if case.versions else case.format
            wrong.append(f"{type_}: {error}\n    {schema}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("format_", "type_"), [(f, t) for f, of in EXAMPLES.items() for t in of if of[t].comment])
def test_what_a_row_says_of_comments_is_true(format_, type_):
    example = EXAMPLES[format_][type_]
    [field] = [field for field in columns(example.cases[0])[1].fields if field.name == "x"]
    assert field.doc == example.comment
