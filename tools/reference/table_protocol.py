"""Page of the names that are stored in tables."""

from __future__ import annotations

from lakehouse.core.table_protocol import NAMES
from tools.reference.markdown import code, page, table

_INTRODUCTION = """\
A table stores its own state: which records its rows are of, what became of the others, and which program owns a branch.
These are the names under which it does so. Other programs may read them. A program that writes or removes one changes
what the next batch, the ledger or a derived topic reads.
"""


def table_protocol() -> str:
    """Return the page."""
    rows = [
        [code(name.name), name.place, f"{name.meaning}.", _modules(name.writers), _modules(name.readers)]
        for name in NAMES
    ]
    return page("Table protocol", _INTRODUCTION, table(["name", "place", "meaning", "writers", "readers"], rows))


def _modules(paths: tuple[str, ...]) -> str:
    return ", ".join(map(code, paths))
