"""Maven artefacts inside of a jar or an archive of jars."""

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

from packageurl import PackageURL

_FILE_NAME = re.compile(r"(?P<artifact>.+?)-(?P<version>\d[\w.+-]*)\.jar")


def of_jar(path: Path) -> Iterator[PackageURL]:
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


def of_listing(listing: str) -> Iterator[PackageURL]:
    """Yield the artefacts of a Quarkus application from its listing of group:artifact:classifier:type:version."""
    for line in listing.split():
        group, artifact, _, _, version = line.split(":")
        yield PackageURL("maven", group, artifact, version)


def _properties(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}
