"""The forms of settings of resources, which lakehouse.yaml is validated against before any system is contacted."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse.core.text import did_you_mean


@dataclass(frozen=True)
class Form:
    """The form of the values of a setting."""

    pattern: str
    """Regular expression that matches the whole value."""
    text: str
    """The form in words."""
    example: str

    def accepts(self, value: str) -> bool:
        """Return whether a value has the form."""
        return re.fullmatch(self.pattern, value) is not None

    def remedy(self, value: str) -> str:
        """Return what to write instead of a value, which is not repeated."""
        return f"Write it as {self.example}"


@dataclass(frozen=True)
class Choice(Form):
    """Values that are listed. None of them is a secret."""

    values: Sequence[str] = ()

    def remedy(self, value: str) -> str:
        return f"{did_you_mean(value.upper(), self.values)} Write one of them".strip()


def one_of(*values: str) -> Choice:
    """Return the form of a setting that has one of these values."""
    return Choice("|".join(map(re.escape, values)), f"{', '.join(values[:-1])} or {values[-1]}", values[0], values)


def url(example: str) -> Form:
    """Return the form of an HTTP address."""
    return Form(r"https?://[^\s/]\S*", "a URL that begins with http:// or https://", example)
