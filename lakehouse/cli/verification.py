"""Exit codes of commands that verify something."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from lakehouse.core.errors import LakehouseError


class _Unverified(click.ClickException):
    """An error that prevents a verification. A failed verification exits with 1."""

    exit_code = 2


@contextmanager
def verification() -> Iterator[None]:
    """Exit with 2 if an error of this project prevents the verification in the body."""
    try:
        yield
    except LakehouseError as error:
        raise _Unverified(str(error)) from error
