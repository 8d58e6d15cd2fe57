"""The runbook: each alert rule and each class of errors, with what to look at and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable

import yaml

from tools.reference.errors import ErrorClass, messages_by_class
from tools.reference.markdown import code, page
from tools.reference.runbook_entries import ALERTS, ERRORS, Entry
from tools.repository import PROJECT

ALERT_RULES = PROJECT / "lakehouse/metrics/alerts.yaml"

_INTRODUCTION = """\
Find the heading of the [alert](#alert-rules-of-prometheus), or the class of the error in parentheses at the end of a
line of the stream's log (in JSON, the field `error`), among the [error classes](#error-classes). The message of an
error names the problem, its effect on data and the command that resolves it: this page adds where to look.

A class that is not there is of a library, such as `ConnectionResetError`: an error that this project does not expect.
Streams and runs retry it as a [TransientError](#transienterror). If it lasts, look at the system that its message
names, and report it with the log.

No error loses or duplicates records: what was published stays, and the next attempt continues behind it.
"""
_MESSAGES = """\
[Messages](monitoring.md#alerts) of Dagster's sensors name the problem and a command. `… recovered` and `Resolved: …`
need no action.

- `Run failed`, `Check failed (…): streaming of …`: follow the remedy in the message. If it has the class of an
  unexpected error only, the log of the run or of the stream has the rest.
- `Check failed (…): fresh of …`: see [LakehouseStageStale](#lakehousestagestale).
- `Check failed` of another check: see [LakehouseCheckFailed](#lakehousecheckfailed).
- `Sensor fails`, `Schedule fails`: follow the remedy. If there is none, the traceback is on the page to which the
  message links. Runs that it starts do not start until then; streams continue.
"""
_RULES = """\
`lakehouse metrics --alerts` prints the rules. Their annotation `runbook_url` is the path of a section of this page in
the repository: put the address where you serve the documentation before it, for example with
`sed 's|docs/runbook.md|https://docs.example.com/runbook.html|'`.
"""
_CLASSES = """\
The [error catalogue](reference/errors.md) has all messages of each class; the commands are those that they name.
"""
_COMMAND = re.compile(r"`(lakehouse(?: [a-z][a-z-]+)+)")


def runbook() -> str:
    """Return the page.

    Raises:
        KeyError: An alert rule or a class of errors has no entry in runbook_entries.py.
    """
    [group] = yaml.safe_load(ALERT_RULES.read_text())["groups"]
    alerts = [
        _section(rule["alert"], f"{_plain(rule['annotations']['summary'])}.", ALERTS[rule["alert"]], [])
        for rule in group["rules"]
    ]
    messages = messages_by_class()
    classes = [_class_section(cls, messages[cls]) for cls in sorted(messages, key=lambda cls: (cls.name, cls.module))]
    return page(
        "Runbook",
        _INTRODUCTION,
        "## Alert rules of Prometheus",
        _RULES,
        *alerts,
        "## Messages of Dagster's sensors",
        _MESSAGES,
        "## Error classes",
        _CLASSES,
        *classes,
    )


def _plain(summary: str) -> str:
    """Return a summary with the names of labels in place of their values."""
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda label: label[1].upper(), summary)


def _class_section(cls: ErrorClass, messages: Iterable[tuple[str, str]]) -> str:
    commands = sorted({command[1] for text, _ in messages for command in _COMMAND.finditer(text)})
    return _section(cls.name, " ".join((cls.load().__doc__ or "").split()), ERRORS[cls.name], commands)


def _section(name: str, happened: str, entry: Entry, commands: Iterable[str]) -> str:
    lines = [f"- **Problem:** {happened}", f"- **Look at:** {entry.look_at}", f"- **Do:** {entry.action}"]
    if named := ", ".join(map(code, commands)):
        lines.append(f"- **Commands in the messages:** {named}")
    return "\n".join([f"### {name}", "", *lines])
