"""Software bill of materials (CycloneDX 1.6, JSON): locked wheels and jars, and the jars inside of them.

cyclonedx-py, which could list the wheels, has no list of jars, and requires the extra of cyclonedx-python-lib that
makes every import of jsonschema seconds slower (pyproject.toml).
"""

import json
import re
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path

import pyspark
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from lakehouse import DISTRIBUTION
from lakehouse.local import jars
from lakehouse.local.jars import Jar
from tools import locks
from tools.locks import Crate, Wheel
from tools.repository import PROJECT

PATH = PROJECT / "dist" / "sbom.cdx.json"
LISTING = "quarkus-app-dependencies.txt"
"""File in Apicurio's archive that lists the Maven coordinates of its jars."""


def write(path: Path = PATH, lock: Path | None = None) -> list[str]:
    """Write the bill of materials and validate it against the CycloneDX schema.

    Args:
        path: The file to write.
        lock: The lock of the jars; by default the embedded stack's.

    Returns:
        Names of locked jars with unlisted contents, because they are not in the cache.
    """
    locked = jars.locked(lock=lock)
    lakehouse = Component(name="lakehouse", version=version(DISTRIBUTION), type=ComponentType.APPLICATION)
    bom = Bom(components=[*map(_wheel, locks.wheels()), *map(_jar, locked), *map(_crate, locks.crates())])
    bom.metadata.component = lakehouse
    bom.register_dependency(lakehouse, bom.components)
    document = JsonV1Dot6(bom).output_as_string(indent=1)
    if faults := list(JsonStrictValidator(SchemaVersion.V1_6).validate_str(document, all_errors=True) or ()):
        raise ValueError(f"The bill of materials violates the CycloneDX schema: {faults[0]}. Nothing was written.")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document)
    return [jar.path.name for jar in locked if not jar.path.exists()]


def package_urls(path: Path = PATH) -> Iterator[str]:
    """Yield the package URL of each component of a bill of materials, nested ones included."""
    pending = json.loads(path.read_text())["components"]
    while pending:
        component = pending.pop()
        pending += component.get("components", [])
        if "purl" in component:
            yield component["purl"]


def _wheel(wheel: Wheel) -> Component:
    """Return the component of a package, with one hash per file, since packages have files for several platforms."""
    url = PackageURL("pypi", None, wheel.name, wheel.version)
    inside = _nested(url, _jars_of_pyspark()) if wheel.name == "pyspark" else []
    return _component(url, hashes=map(_sha256, wheel.sha256), components=inside)


def _crate(crate: Crate) -> Component:
    return _component(PackageURL("cargo", None, crate.name, crate.version), hashes=[_sha256(crate.sha256)])


def _jar(jar: Jar) -> Component:
    group, artifact, number, classifier, packaging = jar.coordinates
    qualifiers = {"classifier": classifier, "type": packaging if packaging != "jar" else ""}
    url = PackageURL("maven", group, artifact, number, {key: value for key, value in qualifiers.items() if value})
    itself = {PackageURL("maven", group, artifact, number), PackageURL("generic", None, artifact, number)}
    inside = _inside(jar) - itself
    return _component(url, hashes=[_sha256(jar.sha256)], components=_nested(url, inside))


def _inside(jar: Jar) -> set[PackageURL]:
    """Return the artefacts in a jar of the cache: its own and shaded ones, or the jars of an archive."""
    if not jar.path.exists():
        return set()
    if jar.path.name.endswith(".tar.gz"):
        with tarfile.open(jar.path, "r|gz") as archive:
            for member in archive:
                if Path(member.name).name == LISTING:
                    return set(artefacts_of_listing(archive.extractfile(member).read().decode()))
        return set()
    return set(artefacts_of_jar(jar.path))


def _jars_of_pyspark() -> set[PackageURL]:
    return {url for path in (Path(pyspark.__file__).parent / "jars").glob("*.jar") for url in artefacts_of_jar(path)}


def _nested(outer: PackageURL, inner: Iterable[PackageURL]) -> list[Component]:
    return [_component(url, bom_ref=f"{outer}!{url}") for url in sorted(inner)]


def _component(url: PackageURL, **more) -> Component:
    more.setdefault("bom_ref", str(url))
    return Component(
        type=ComponentType.LIBRARY, name=url.name, group=url.namespace, version=url.version, purl=url, **more
    )


def _sha256(digest: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=digest)


_FILE_NAME = re.compile(r"(?P<artifact>.+?)-(?P<version>\d[\w.+-]*)\.jar")


def artefacts_of_jar(path: Path) -> Iterator[PackageURL]:
    """Yield the artefact of a jar and those shaded into it, from the metadata that Maven adds.

    Without such metadata, the artefact and version are those of the file name, and the group is unknown.
    """
    anonymous = True
    with zipfile.ZipFile(path) as jar:
        for name in jar.namelist():
            if name.startswith("META-INF/maven/") and name.endswith("/pom.properties"):
                properties = _properties(jar.read(name).decode(errors="replace"))
                if {"groupId", "artifactId", "version"} <= properties.keys():
                    anonymous = False
                    yield PackageURL("maven", properties["groupId"], properties["artifactId"], properties["version"])
    if anonymous and (named := _FILE_NAME.fullmatch(path.name)):
        yield PackageURL("generic", None, named["artifact"], named["version"])


def artefacts_of_listing(listing: str) -> Iterator[PackageURL]:
    """Yield the artefacts of a Quarkus application from its listing of group:artifact:classifier:type:version."""
    for line in listing.split():
        group, artifact, _, _, version = line.split(":")
        yield PackageURL("maven", group, artifact, version)


def _properties(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


if __name__ == "__main__":
    unread = write()
    print(f"{PATH.relative_to(PROJECT)}: {len(list(package_urls()))} components")
    if unread:
        print(f"Contents not listed, as they are not in the cache: {', '.join(unread)}")
