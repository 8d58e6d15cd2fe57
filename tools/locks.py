"""The locked packages, and the update of the locks: `make update-locks`.

uv resolves requirements.lock from pyproject.toml; packages that still fit keep their version unless they are named. A
line of a jar lock with `- -` as hash and size is completed; all other lines are trusted and not changed.
"""

import hashlib
import re
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from lakehouse.local import jars
from lakehouse.local.jars import Jar
from tools.repository import PROJECT

WHEEL_LOCK = PROJECT / "requirements.lock"
_ENTRY = re.compile(
    r"^(?P<name>[\w.-]+)==(?P<version>[^\s;\\]+)(?P<rest>[^\n]*\n(?:    --hash=[^\n]*\n?)*)", flags=re.MULTILINE
)


@dataclass(frozen=True)
class Wheel:
    """One package of the lock, with the hashes of all files that may be installed."""

    name: str
    version: str
    sha256: tuple[str, ...]


def wheels(lock: Path = WHEEL_LOCK) -> list[Wheel]:
    """Return the locked packages in the order of the file. A name may occur twice with different markers."""
    return [
        Wheel(match["name"], match["version"], tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})\b", match["rest"])))
        for match in _ENTRY.finditer(lock.read_text())
    ]


CRATE_LOCK = PROJECT / "native/Cargo.lock"


@dataclass(frozen=True)
class Crate:
    """One library of the compiled decoder, with the hash of its file."""

    name: str
    version: str
    sha256: str


def crates(lock: Path = CRATE_LOCK) -> list[Crate]:
    """Return the locked libraries of the compiled decoder, which itself has no hash, in the order of the file."""
    packages = tomllib.loads(lock.read_text())["package"]
    return [Crate(one["name"], one["version"], one["checksum"]) for one in packages if "checksum" in one]


JAR_LOCKS = (
    jars.LOCK,
    PROJECT / "tests/support/clouds/rest/server.lock",
    PROJECT / "tests/support/debezium/connector.lock",
    PROJECT / "benchmarks/locks/connect.lock",
    PROJECT / "benchmarks/locks/flink.lock",
)
_INCOMPLETE = re.compile(r"^(?P<server>\S+ +)- - (?P<path>\S+)$", flags=re.MULTILINE)


def update_wheels(upgrade: list[str], lock: Path = WHEEL_LOCK) -> None:
    """Resolve pyproject.toml for all platforms and Python versions, and lock each file by its hash.

    Args:
        upgrade: Names of packages to upgrade to their newest version.
        lock: The file to write.
    """
    command = [Path(sys.executable).with_name("uv"), "pip", "compile", "pyproject.toml", "--quiet"]
    command += ["--all-extras", "--universal", "--python-version", "3.11", "--generate-hashes"]
    command += ["--no-emit-index-url", "--no-emit-find-links", "--custom-compile-command", "make update-locks"]
    command += [argument for name in upgrade for argument in ("--upgrade-package", name)]
    subprocess.run([*command, "--output-file", lock], cwd=PROJECT, check=True)


def complete_jars(lock: Path) -> list[str]:
    """Add missing hashes and sizes to a lock of jars, from the Maven repository.

    Returns:
        The paths of the completed lines.
    """
    completed = []

    def line(match: re.Match) -> str:
        group, artifact, version, classifier, packaging = Jar("", "", 0, match["path"]).coordinates
        component = jars.maven(Path(folder)).project(group, artifact).at_version(version)
        file = component.artifact(classifier, packaging).resolve()
        completed.append(match["path"])
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        return f"{match['server']}{digest} {file.stat().st_size:>9} {match['path']}"

    text = lock.read_text()
    with tempfile.TemporaryDirectory() as folder:
        complete = _INCOMPLETE.sub(line, text)
    if complete != text:
        lock.write_text(complete)
    return completed


if __name__ == "__main__":
    update_wheels(sys.argv[1:])
    for jar_lock in JAR_LOCKS:
        for path in complete_jars(jar_lock):
            print(f"{jar_lock.relative_to(PROJECT)}: locked {path}. Compare its hash with one published elsewhere.")
    jars.fetch({jar.server for jar in jars.locked()})
