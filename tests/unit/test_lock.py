"""requirements.lock: required packages in allowed versions, and a hash of each file."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lakehouse.local import jars
from tools import locks
from tools.repository import PROJECT


def test_lock_has_every_required_package():
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    required = [Requirement(line) for line in (*project["dependencies"], *extras["local"], *extras["test"])]
    locked = {wheel.name: wheel.version for wheel in locks.wheels()}

    incompatible = [
        str(requirement)
        for requirement in required
        if not requirement.specifier.contains(locked.get(canonicalize_name(requirement.name), "0"))
    ]
    missing = [requirement.name for requirement in required if canonicalize_name(requirement.name) not in locked]
    assert required and not missing and not incompatible


def test_lock_each_package_has_hash():
    text = (PROJECT / "requirements.lock").read_text()
    packages = locks.wheels()
    assert len(packages) == len(re.findall(r"^[^\s#]", text, flags=re.M))
    assert [package.name for package in packages if not package.sha256] == []
    assert sum(len(package.sha256) for package in packages) == text.count("--hash=")


def test_lock_names_no_package_index():
    text = (PROJECT / "requirements.lock").read_text()
    assert not re.search(r"https?://|^--?(i|index|extra-index|find-links)", text, flags=re.M)


@pytest.mark.parametrize("lock", locks.JAR_LOCKS, ids=lambda lock: lock.name)
def test_lock_each_jar_has_hash_and_size(lock):
    locked = jars.locked(lock=lock)
    assert locked
    assert [jar for jar in locked if not re.fullmatch("[0-9a-f]{64}", jar.sha256) or jar.bytes <= 0] == []
