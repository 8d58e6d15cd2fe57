"""What can go wrong, as types. Each message says what was found, what was left untouched and what to do about it."""

from __future__ import annotations


class LakehouseError(Exception):
    """The root of every error this project raises on purpose; the command line prints it without a traceback."""


class ConfigError(LakehouseError):
    """lakehouse.yaml (or what it points to) cannot be used: names file, line, key and remedy."""


class SchemaError(LakehouseError):
    """A schema cannot become a table, or no longer fits the table there is."""


class Unreachable(LakehouseError):
    """A system does not answer."""

    def __init__(self, system: str, where: str, check: str, cause: object = None):
        """
        Parameters: the system's name, the address that was tried (never with credentials), what the reader
        should check, and what the client said.
        """
        said = f": {cause}" if cause else ""
        super().__init__(f"{system} does not answer at {where}{said}. Nothing was changed. Check {check}")
        self.system, self.where = system, where


class UnclearState(LakehouseError):
    """Going on could lose or duplicate data: stopped, with nothing changed, until somebody decides."""


class CommitConflict(LakehouseError):
    """Another writer published first: this batch was not published and may be tried again from the new offsets."""
