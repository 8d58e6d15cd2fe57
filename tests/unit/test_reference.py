"""The generated reference pages in docs/."""

import json
import re
from functools import cache

import click
import pytest
import yaml
from click.testing import CliRunner

from lakehouse.cli.main import main
from lakehouse.core.errors import LakehouseError
from tools.reference import PAGES
from tools.reference.errors import messages_by_class
from tools.reference.runbook import ALERT_RULES
from tools.reference.runbook_entries import ALERTS, ERRORS
from tools.repository import PROJECT


@cache
def errors() -> str:
    """Return the generated page of errors, which takes seconds."""
    return PAGES["reference/errors.md"]()


@pytest.mark.parametrize("path", PAGES)
def test_reference_page_equals_generated_page(path):
    generated = errors() if path == "reference/errors.md" else PAGES[path]()
    assert (PROJECT / "docs" / path).read_text() == generated, "Run `python -m tools.reference`"


def test_cli_reference_after_help_was_printed_is_the_same():
    # click creates the help option of a command once per process.
    CliRunner().invoke(main, ["status", "--help"])
    assert "\n  -h, --help  Show this message and exit." in PAGES["reference/cli.md"]()
    assert (PROJECT / "docs/reference/cli.md").read_text() == PAGES["reference/cli.md"]()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("AuditFailed", "did not pass its audit"),
        ("NotFound", "found no object that is visible to the key"),
        ("Unreachable", "S3 does not answer at"),
        ("UnclearState", "was filled from topic"),
    ],
)
def test_error_page_lists_messages_by_class(name, message):
    sections = dict(section.split("\n", 1) for section in errors().split("\n## ")[1:])
    assert message in sections[name]


def test_runbook_has_an_entry_for_each_error_class_and_alert_rule():
    sections = set(re.findall("^### (.+)$", PAGES["runbook.md"](), re.MULTILINE))
    [group] = yaml.safe_load(ALERT_RULES.read_text())["groups"]
    rules = {rule["alert"]: rule["annotations"]["runbook_url"] for rule in group["rules"]}
    classes = {cls.name for cls in messages_by_class()}
    assert sections == {*rules, *classes} == {*ALERTS, *ERRORS}
    assert rules == {name: f"docs/runbook.md#{name.lower()}" for name in rules}


def test_error_page_lists_each_loaded_class():
    def subclasses(cls):
        return {cls} | {descendant for child in cls.__subclasses__() for descendant in subclasses(child)}

    sections = errors()
    project = ("lakehouse.", "assets.", "resources.", "spark.")
    names = {cls.__name__ for cls in subclasses(LakehouseError) if cls.__module__.startswith(project)}
    assert not {name for name in names if f"\n## {name}\n" not in sections}


def test_configuration_page_describes_each_key():
    rows = [line.split(" | ") for line in PAGES["reference/configuration.md"]().splitlines() if line.startswith("| `")]
    assert len(rows) > 150
    assert not [row[0] for row in rows if not row[-1].rstrip("|").strip()]


def test_json_schema_describes_each_key():
    schema = json.loads(PAGES["lakehouse.schema.json"]())
    models = {"": schema, **schema["$defs"]}
    assert not [
        f"{name}.{key}"
        for name, model in models.items()
        for key, value in model.get("properties", {}).items()
        if key != "type" and not value.get("description")
    ]


def commands(command, path=()):
    yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            yield from commands(command.get_command(click.Context(command), name), (*path, name))


def test_cli_describes_each_command_and_option():
    undescribed = [
        " ".join((*path, parameter.name or ""))
        for path, command in commands(main)
        for parameter in command.params
        if isinstance(parameter, click.Option) and not parameter.hidden and not parameter.help
    ]
    assert not undescribed
    assert not [" ".join(path) for path, command in commands(main) if not command.help]
