"""Files of a new project: the folder `starter` with the names and versions of this installation."""

import re
from collections.abc import Iterable, Mapping
from importlib.metadata import requires, version
from pathlib import Path

from lakehouse import DISTRIBUTION
from lakehouse.config.new_project import KEYS, Servers, configuration_files, write_new
from lakehouse.core.terminal import echo

_STARTER = Path(__file__).parent / "starter"
_PACKAGE = Path(__file__).parent.parent
_PLACES = {
    "transforms/large_orders.py": "transforms/large_orders.py",
    "transforms/defs/__init__.py": "transforms/defs/__init__.py",
    "tests/test_project.py": "tests/test_project.py",
    "pyproject.toml": "pyproject.toml",
    "workspace.yaml": "workspace.yaml",
    "README.md": "README.md",
    ".gitignore": "gitignore",
    ".dockerignore": "dockerignore",
    ".github/workflows/checks.yml": "checks.yml",
}
"""The files of a project, and those of `starter` from which they are made."""
_PLACES_WITH_SERVERS = {"README.md": "servers.md"}
"""The files that differ without the embedded stack."""
_LOCKED = re.compile(r"^(?P<name>[\w.-]+)==[^\n]*\n(?:    [^\n]*\n?)*", flags=re.MULTILINE)
_VIA = re.compile(r"^    #(?: via)? +(?P<name>[\w.-]+)", flags=re.MULTILINE)


def create(folder: Path, servers: Servers) -> list[str]:
    """Write the files of a new project, print the addresses that its environment lacks, and return the files' paths.

    Args:
        folder: The folder of the project, which may exist.
        servers: The servers of its environment.

    Raises:
        LakehouseError: One of the files exists; nothing is written then.
    """
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-") or "project"
    words = {"NAME": name, "DISTRIBUTION": DISTRIBUTION, "VERSION": version(DISTRIBUTION)}
    words["ENVIRONMENT"] = servers.environment
    is_embedded = servers.environments() is None
    places = _PLACES if is_embedded else _PLACES | _PLACES_WITH_SERVERS
    files = configuration_files(folder, servers)
    files |= {place: _filled((_STARTER / source).read_text(), words) for place, source in places.items()}
    files["requirements.lock"] = _lock(extra="local" if is_embedded else "")
    if not is_embedded:
        files["pyproject.toml"] = files["pyproject.toml"].replace("[local]", "")
    write_new(folder, files)
    if missing := servers.missing():
        settings = ", ".join(f"{'.'.join(KEYS[option])} (--{option})" for option in missing)
        echo(f"Note: the environment '{servers.environment}' lacks {settings}. Add them to environments.yaml", err=True)
    return [*files]


def _filled(text: str, words: Mapping[str, str]) -> str:
    return re.sub(r"\b(?:NAME|DISTRIBUTION|VERSION|ENVIRONMENT)\b", lambda match: words[match[0]], text)


def _lock(extra: str) -> str:
    """Return the packages that this distribution needs, in the versions with which it was tested, with their hashes.

    The lock of this distribution names the dependents of each package, so that no package index is needed.
    """
    texts: dict[str, str] = {}
    for match in _LOCKED.finditer((_PACKAGE / "requirements.lock").read_text()):
        texts[match["name"]] = texts.get(match["name"], "") + match[0]
    dependents = {name: {match["name"] for match in _VIA.finditer(text)} for name, text in texts.items()}
    needed = {*_direct(extra)} & texts.keys()
    while more := {name for name, by in dependents.items() if by & needed} - needed:
        needed |= more
    header = f"# The packages with which {DISTRIBUTION} {version(DISTRIBUTION)} was tested.\n"
    return header + "".join(text for name, text in texts.items() if name in needed)


def _direct(extra: str) -> Iterable[str]:
    """Yield the normalized names of the packages that this distribution requires itself, with an extra."""
    for line in requires(DISTRIBUTION) or ():
        requirement, _, marker = line.partition(";")
        if not marker or (extra and f"extra == '{extra}'" in marker.replace('"', "'")):
            yield re.sub(r"[-_.]+", "-", re.split(r"[\s\[<>=!~]", requirement.strip(), maxsplit=1)[0]).lower()
