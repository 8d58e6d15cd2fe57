"""THIRD_PARTY_LICENSES.md has each locked wheel and jar, in its version, with a licence; the project has its own."""

import re
import tomllib

from lakehouse.config.loader import PROJECT
from lakehouse.local import jars
from tools import wheel_lock

TEXT = (PROJECT / "THIRD_PARTY_LICENSES.md").read_text()


def _rows():
    """Return the licence of each name and version, from both generated tables."""
    generated = TEXT[TEXT.index("## Python packages") :]
    rows = re.findall(r"^\| ([\w.:-]+) \| (\S*\d\S*) \| (.+) \|$", generated, flags=re.MULTILINE)
    return {(name, version): licence for name, version, licence in rows}


def test_the_list_has_what_is_locked_and_nothing_else():
    wheels = {(wheel.name, wheel.version) for wheel in wheel_lock.wheels()}
    coordinates = [jar.coordinates for jar in jars.locked()]
    locked = {(f"{group}:{artifact}", version) for group, artifact, version, *_ in coordinates}
    assert _rows().keys() == wheels | locked, "run `make update-locks`"


def test_each_declares_a_licence():
    assert [name for name, licence in _rows().items() if not licence.strip() or "not declared" in licence] == []


def test_the_project_declares_its_licence_and_ships_the_text():
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    assert all((PROJECT / name).is_file() for name in project["license-files"])
    assert "Version 2.0, January 2004" in (PROJECT / "LICENSE").read_text()


def test_the_files_of_others_in_the_repository_come_with_their_licence():
    links = re.findall(r"\]\(((?!http)[^)]+)\)", TEXT)
    assert len(links) >= 4
    assert [link for link in links if not (PROJECT / link).is_file()] == []
