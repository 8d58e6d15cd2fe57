"""The generated reference pages in docs/."""

import pytest
from click.testing import CliRunner

from lakehouse.cli.main import main
from lakehouse.config.loader import PROJECT
from tools.reference import PAGES


@pytest.mark.parametrize("path", PAGES)
def test_reference_page_equals_generated_page(path):
    assert (PROJECT / "docs" / path).read_text() == PAGES[path](), "Run `python -m tools.reference`"


def test_cli_reference_after_help_was_printed_is_the_same():
    # click creates the help option of a command once per process.
    CliRunner().invoke(main, ["status", "--help"])
    assert "\n  -h, --help  Show this message and exit." in PAGES["reference/cli.md"]()
    assert (PROJECT / "docs/reference/cli.md").read_text() == PAGES["reference/cli.md"]()
