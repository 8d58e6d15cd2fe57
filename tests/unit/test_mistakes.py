"""Mistakes in lakehouse.yaml and the whole messages about them, which mistakes.txt has side by side.

A message names the file, the line, the key, the problem and what to write. Each section of mistakes.txt is a title, a
lakehouse.yaml, a line `=>`, and the message. The checks of sections whose title begins with `SQL` are analyzed.
"""

import re
import sys
from pathlib import Path

import pytest

from lakehouse.config import loader
from lakehouse.config.known_columns import column_faults, columns_of_files
from lakehouse.core.errors import ConfigError
from lakehouse.local.check_syntax import syntax_faults
from lakehouse.pipeline.derivation.transforms import transform_faults
from resources.build import environment_faults

TABLE = Path(__file__).with_name("mistakes.txt")
SECTION = re.compile(r"^## (?P<title>.+)\n(?P<file>(?:.*\n)*?)=>\n(?P<message>(?:.+\n)+)", re.MULTILINE)
MISTAKES = {section["title"]: section for section in SECTION.finditer(TABLE.read_text())}
FILES = {
    "trade.avsc": """{"type": "record", "name": "trade", "fields": [
        {"name": "symbol", "type": "string"},
        {"name": "price", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}}]}""",
    "shop_mine.py": "big = 3\n\ndef totals(rows):\n    return rows\n\ndef joined(rows, other):\n    return rows\n",
    "shop_broken.py": "def totals(rows)\n    return rows\n",
    "broken.json": "{no JSON",
    "strng.avsc": '{"type": "record", "name": "t", "fields": [{"name": "symbol", "type": "strng"}]}',
    "twice.avsc": """{"type": "record", "name": "t", "fields": [
        {"name": "symbol", "type": "string"}, {"name": "symbol", "type": "string"}]}""",
    "comma.avsc": '{"type": "record", "name": "t", "fields": [\n{"name": "a" "type": "int"}]}',
    "nothing.yaml": "# no environment\n",
    "nested.yaml": "environments:\n  here: {}\n",
    "open.yaml": "here: {kafka: {bootstrap_servers: h\nother: hunter2}",
    "typo.yaml": "here:\n  kafka: {bootstrap_server: 'h:1'}\n",
}
"""The files beside each lakehouse.yaml."""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A project with these files, whose modules no other test has imported."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
        sys.modules.pop(name.removesuffix(".py"), None)
    return tmp_path


@pytest.mark.parametrize("title", MISTAKES)
def test_mistake_has_the_message_of_the_table(title, folder):
    file = folder / "lakehouse.yaml"
    file.write_text(MISTAKES[title]["file"])

    def columns(config):
        return column_faults(config, columns_of_files(config))

    def syntax(config):
        return syntax_faults(config, columns_of_files(config))

    validations = [environment_faults, transform_faults, columns, *([syntax] if title.startswith("SQL") else [])]
    with pytest.raises(ConfigError) as raised:
        loader.load(file, validations=validations)
    assert str(raised.value).replace(str(folder), "{folder}") + "\n" == MISTAKES[title]["message"]


def test_table_of_mistakes_is_read_whole():
    assert len(MISTAKES) == TABLE.read_text().count("\n=>\n") > 80
