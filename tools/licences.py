"""Write THIRD_PARTY_LICENSES.md from the metadata of the locked wheels, jars and crates.

pip-licenses, which lists installed packages, has neither those of other platforms nor jars.
"""

import json
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from jgo.maven import MavenContext

from lakehouse.local import jars
from lakehouse.local.jars import Jar
from tools import locks
from tools.locks import Wheel
from tools.repository import PROJECT

PATH = PROJECT / "THIRD_PARTY_LICENSES.md"
_HEAD = """\
# Licences of third parties

lakehouse itself is under the Apache License 2.0 ([LICENSE](LICENSE)). `make update-locks` writes this file.

## In this repository

| files | from | licence |
| --- | --- | --- |
| `schemas/users.avsc`, `schemas/stock_trades.avsc` | [confluentinc/kafka-connect-datagen](https://github.com/confluentinc/kafka-connect-datagen) | Apache-2.0 ([text](schemas/LICENSE.datagen)) |
| `tests/support/clouds/confluent/specs/` | Confluent's SDK and Terraform provider: [which files from where](tests/support/clouds/confluent/specs/LICENSES.md) | Apache-2.0 ([text](tests/support/clouds/confluent/specs/LICENSE-APACHE-2.0.txt)) |

Everything below is not part of the repository or of the wheel. It is downloaded from package registries, and each
package brings the text of its licence. Names of licences are as the packages declare them.

"""  # noqa: E501 (rows of a table)


def render(wheels: list[str], locked: list[str], crates: list[str]) -> str:
    """Return the document with the rows of its tables."""
    table = "| --- | --- | --- |\n"
    return (
        f"{_HEAD}## Python packages (requirements.lock)\n\n| package | version | licence |\n{table}{''.join(wheels)}"
        f"\n## Java artefacts (lakehouse/local/jars.lock)\n\n| artefact | version | licence |\n{table}{''.join(locked)}"
        f"\n## Libraries of the compiled decoder (native/Cargo.lock)\n\n| crate | version | licence |\n{table}"
        f"{''.join(crates)}"
    )


def write(path: Path = PATH) -> None:
    """Write the document, with metadata from the package index and the Maven repository."""
    with tempfile.TemporaryDirectory() as folder:
        maven = jars.maven(Path(folder))
        wheels = [f"| {wheel.name} | {wheel.version} | {_of_wheel(wheel)} |\n" for wheel in locks.wheels()]
        locked = [
            f"| {group}:{artifact} | {version} | {_of_jar(maven, jar)} |\n"
            for jar in jars.locked()
            for group, artifact, version, *_ in [jar.coordinates]
        ]
    path.write_text(render(wheels, locked, _crates()))


def _crates() -> list[str]:
    """Return the rows of the crates, by their metadata in the registry, which cargo reads."""
    command = [
        "cargo",
        "metadata",
        "--locked",
        "--format-version",
        "1",
        "--manifest-path",
        PROJECT / "native/Cargo.toml",
    ]
    packages = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["packages"]
    licences = {(one["name"], one["version"]): one["license"] or "not declared" for one in packages}
    return [f"| {crate.name} | {crate.version} | {licences[crate.name, crate.version]} |\n" for crate in locks.crates()]


def _of_wheel(wheel: Wheel) -> str:
    try:
        return _declared(metadata.metadata(wheel.name))
    except metadata.PackageNotFoundError:
        return _of_wheel_for_elsewhere(wheel)


def _of_wheel_for_elsewhere(wheel: Wheel) -> str:
    """Return the licence of a package that is not installed on this platform, from its wheel for Windows."""
    with tempfile.TemporaryDirectory() as folder:
        command = [Path(sys.executable).with_name("uv"), "pip", "install", "--quiet", "--no-deps", "--target", folder]
        command += [
            "--python-platform",
            "windows",
            "--python-version",
            "3.13",
            "--only-binary",
            ":all:",
            f"{wheel.name}=={wheel.version}",
        ]
        subprocess.run(command, check=True)
        (distribution,) = metadata.distributions(path=[folder])
        return _declared(distribution.metadata)


def _declared(package: metadata.PackageMetadata) -> str:
    """Return the licence expression, or in older packages the classifiers or the text of the licence."""
    prefix = "License :: "
    classifiers = [one.split(" :: ")[-1] for one in package.get_all("Classifier", []) if one.startswith(prefix)]
    older = (package.get("License") or "").split("\n")[0]
    return package.get("License-Expression") or " / ".join(classifiers) or older or "not declared"


def _of_jar(maven: MavenContext, jar: Jar) -> str:
    """Return the licences of the artefact's POM, or of the nearest parent with licences."""
    group, artifact, version, *_ = jar.coordinates
    pom = maven.project(group, artifact).at_version(version).pom()
    while pom:
        if names := [name for name in pom.values("licenses/license/name") if name]:
            return " / ".join(" ".join(name.split()) for name in names)
        pom = maven.pom_parent(pom)
    return "not declared"


if __name__ == "__main__":
    write()
