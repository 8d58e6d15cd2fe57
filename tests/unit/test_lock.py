"""requirements.lock has what pyproject.toml asks for, in a version that it allows."""

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lakehouse.config import PROJECT


def test_everything_that_is_asked_for_is_locked():
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = [Requirement(line) for line in (*project["dependencies"], *extras["local"], *extras["test"])]
    locked = dict(re.findall(r"^([\w.-]+)==([^\s;\\]+)", (PROJECT / "requirements.lock").read_text(), flags=re.M))

    refused = [str(one) for one in asked if not one.specifier.contains(locked.get(canonicalize_name(one.name), "0"))]
    missing = [one.name for one in asked if canonicalize_name(one.name) not in locked]
    assert asked and not missing and not refused
