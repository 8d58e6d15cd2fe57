"""The rule that no test replaces a function or class of the project.

Such a test proves what its author believed that the function does, and passes after the function has changed. Instead,
tests replace functions of libraries and limits (numbers) of the project, or give the project another client, clock,
engine or configuration file.
"""

from __future__ import annotations

import inspect
from functools import cached_property, partial
from typing import Any

PACKAGES = ("assets", "lakehouse", "resources", "spark")
"""The packages of the project's production code."""


def require_replaceable(owner: object, name: str) -> None:
    """Require that an attribute which a test replaces is no function, class or property of the project."""
    member = _unwrapped(inspect.getattr_static(owner, name, None))
    if inspect.isroutine(member) or inspect.isclass(member):
        module = getattr(member, "__module__", None) or ""
        assert module.partition(".")[0] not in PACKAGES, (
            f"A test replaces {module}.{member.__qualname__}, which is code of the project. Give the project another "
            f"client, clock, engine or configuration instead (tests/support/replaceable.py)"
        )


def _unwrapped(member: Any) -> Any:
    """Return the function of a method, property or partial function."""
    match member:
        case staticmethod() | classmethod():
            return _unwrapped(member.__func__)
        case property():
            return _unwrapped(member.fget)
        case cached_property() | partial():
            return _unwrapped(member.func)
    return member
