"""Settings of client libraries in lakehouse.yaml: which ones a system has, and why others are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lakehouse.config.environment import ClientSettings, EnvRef
from lakehouse.core.text import did_you_mean
from resources.forms import Form

IN_FILE = "the file contains a secret"
SECRET = (
    f"{IN_FILE}. Nothing was changed. Remove it, write {{env: NAME}} without a default and set that variable, and "
    "replace the secret if the file was shared"
)
PASSWORD_IN_ADDRESS = re.compile(r"://[^/\s@:]*:[^/\s@]+@")

COUNT = Form(r"[1-9]\d*", "a positive integer", "30000")
FILE = Form(r"/\S.*", "an absolute path", "/etc/lakehouse/file.pem")
ADDRESS = Form(r"https?://[^\s/@]+(/[^\s@]*)?", "a URL without a login", "https://login.example.com/oauth2/token")


@dataclass(frozen=True)
class ClientSetting:
    """A setting that lakehouse.yaml may have."""

    text: str
    """Description."""
    form: Form | None = None
    """The form of its values; None for any text."""
    is_secret: bool = False


@dataclass(frozen=True)
class Refusal:
    """Settings that lakehouse.yaml must not have."""

    names: str
    """Regular expression of their names."""
    reason: str
    """Why, and the remedy."""


@dataclass(frozen=True)
class SettingsOfClient:
    """The settings of one client library."""

    known: Mapping[str, ClientSetting]
    """By the library's names."""
    refused: Sequence[Refusal]
    """The first that matches has the reason."""

    def faults(self, settings: ClientSettings) -> Iterator[tuple[str, str]]:
        """Yield the faults of single settings in the file, as name and problem, without values that may be secrets."""
        for name, setting in settings.items():
            value = text_of(setting.default or "") if isinstance(setting, EnvRef) else text_of(setting)
            if name not in self.known:
                yield name, self._refusal(name)
            elif value and (self.known[name].is_secret or PASSWORD_IN_ADDRESS.search(value)):
                yield name, SECRET
            else:
                yield from self.value_faults({name: value})

    def value_faults(self, values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Yield the values that do not have the form of their setting, as name and problem."""
        for name, value in values.items():
            form = self.known[name].form
            if value and form and not form.accepts(value):
                shown = "" if "@" in value else f", but is {value!r}"
                yield name, f"must be {form.text}{shown}. {form.remedy(value)}"

    def _refusal(self, name: str) -> str:
        for refusal in self.refused:
            if re.fullmatch(refusal.names, name):
                return refusal.reason
        return f"unknown setting.{did_you_mean(name, self.known)} Known settings: {', '.join(self.known)}"


def certificate_faults(settings: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield the faults of a client's certificate and key, which need each other, as name and problem.

    Args:
        settings: Settings by name, without those that are empty.
    """
    for name in ("ssl.ca", "ssl.certificate", "ssl.key"):
        if {f"{name}.location", f"{name}.pem"} <= settings.keys():
            yield f"{name}.pem", f"'{name}.location' has it, too. Remove one of them"
    certificates = sorted(settings.keys() & {"ssl.certificate.location", "ssl.certificate.pem"})
    keys = sorted(settings.keys() & {"ssl.key.location", "ssl.key.pem"})
    if certificates and not keys:
        yield certificates[0], "a certificate needs its key. Add 'ssl.key.location'"
    if keys and not certificates:
        yield keys[0], "a key has no effect without its certificate. Add 'ssl.certificate.location'"


def text_of(value: object) -> str:
    """Return a value of a setting as client libraries read it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
