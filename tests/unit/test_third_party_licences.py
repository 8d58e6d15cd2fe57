"""THIRD_PARTY_LICENSES.md: a licence for each locked wheel, jar and crate, and the project's own licence."""

import re
import tomllib

from lakehouse.local import jars
from tools import locks
from tools.repository import PROJECT

TEXT = (PROJECT / "THIRD_PARTY_LICENSES.md").read_text()


def licences():
    """Return the licence of each name and version, from the generated tables."""
    generated = TEXT[TEXT.index("## Python packages") :]
    rows = re.findall(r"^\| ([\w.:-]+) \| (\S*\d\S*) \| (.+) \|$", generated, flags=re.MULTILINE)
    return {(name, version): licence for name, version, licence in rows}


def test_licences_list_exactly_the_locked_artefacts():
    wheels = {(wheel.name, wheel.version) for wheel in locks.wheels()}
    coordinates = [jar.coordinates for jar in jars.locked()]
    locked = {(f"{group}:{artifact}", version) for group, artifact, version, *_ in coordinates}
    crates = {(crate.name, crate.version) for crate in locks.crates()}
    assert licences().keys() == wheels | locked | crates, "run `make update-locks`"


def test_licences_are_declared_for_each_artefact():
    assert [name for name, licence in licences().items() if not licence.strip() or "not declared" in licence] == []


def test_project_declares_and_ships_its_licence():
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    assert all((PROJECT / name).is_file() for name in project["license-files"])
    assert "Version 2.0, January 2004" in (PROJECT / "LICENSE").read_text()


def test_copied_files_have_their_licence():
    links = re.findall(r"\]\(((?!http)[^)]+)\)", TEXT)
    assert len(links) >= 4
    assert [link for link in links if not (PROJECT / link).is_file()] == []
