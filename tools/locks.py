"""Bring the locks up to date with what is asked for: `make update-locks`.

requirements.lock follows pyproject.toml; what still fits keeps its version unless it is named. A line of a jar lock
whose hash and size are `- -` is completed; all other lines are what is trusted, and stay.
"""

import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from lakehouse.config.loader import PROJECT
from lakehouse.local import jars
from lakehouse.local.jars import Jar
from tools import wheel_lock

JAR_LOCKS = (
    jars.LOCK,
    PROJECT / "tests/stack/rest_catalog.lock",
    PROJECT / "benchmarks/locks/connect.lock",
    PROJECT / "benchmarks/locks/flink.lock",
)
_INCOMPLETE = re.compile(r"^(?P<server>\S+ +)- - (?P<path>\S+)$", flags=re.MULTILINE)


def update_wheels(upgrade: list[str], lock: Path = wheel_lock.LOCK) -> None:
    """Resolve pyproject.toml for all platforms and Python versions, and lock each file by its hash.

    Args:
        upgrade: Names of packages that may take their newest version.
        lock: The file to write.

    Raises:
        subprocess.CalledProcessError: There is no solution; uv has explained why.
    """
    command = [Path(sys.executable).with_name("uv"), "pip", "compile", "pyproject.toml", "--quiet"]
    command += ["--all-extras", "--universal", "--python-version", "3.11", "--generate-hashes"]
    command += ["--no-emit-index-url", "--no-emit-find-links", "--custom-compile-command", "make update-locks"]
    command += [argument for name in upgrade for argument in ("--upgrade-package", name)]
    subprocess.run([*command, "--output-file", lock], cwd=PROJECT, check=True)


def complete_jars(lock: Path) -> list[str]:
    """Fill in hash and size where a lock of jars has none yet, from the Maven repository.

    Returns:
        The paths of the completed lines.
    """
    completed = []

    def line(found: re.Match) -> str:
        group, artifact, version, classifier, packaging = Jar("", "", 0, found["path"]).coordinates
        component = jars.maven(Path(folder)).project(group, artifact).at_version(version)
        file = component.artifact(classifier, packaging).resolve()
        completed.append(found["path"])
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        return f"{found['server']}{digest} {file.stat().st_size:>9} {found['path']}"

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
