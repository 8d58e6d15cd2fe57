"""Exit codes of commands that verify something."""

from contextlib import AbstractContextManager

import click

from lakehouse.core.errors import LakehouseError, translate


class _Unverified(click.ClickException):
    """An error that prevents a verification. A failed verification exits with 1."""

    exit_code = 2


def verification() -> AbstractContextManager[None]:
    """Exit with 2 if an error of this project prevents the verification in the body."""
    return translate({LakehouseError: lambda error: _Unverified(str(error))})
