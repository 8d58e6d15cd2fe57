"""The cache of the Java artifacts in jars.lock. Artifacts that differ from the lock are never used.

They are downloaded from jgo's default Maven repository, or from the mirror at LAKEHOUSE_MAVEN_URL.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import platformdirs
import requests
from jgo.maven import MavenContext, PythonResolver

from lakehouse.core.errors import LakehouseError
from lakehouse.local.home import explain_full_disk, write_atomically

if TYPE_CHECKING:
    from rich.progress import Progress

LOCK = Path(__file__).with_name("jars.lock")


@dataclass(frozen=True)
class Jar:
    """One line of the lock."""

    server: str
    sha256: str
    bytes: int
    maven_path: str
    """group/with/slashes/artifact/version/artifact-version[-classifier].packaging"""

    @property
    def path(self) -> Path:
        """Path in the cache."""
        return cache() / "jars" / self.maven_path

    @property
    def coordinates(self) -> tuple[str, str, str, str, str]:
        """Maven coordinates: group, artifact, version, classifier and packaging."""
        path = PurePosixPath(self.maven_path)
        artifact, version = path.parts[-3:-1]
        rest = path.name.removeprefix(f"{artifact}-{version}")
        classifier, packaging = rest.removeprefix("-").split(".", 1)
        return ".".join(path.parts[:-3]), artifact, version, classifier, packaging


def cache() -> Path:
    """Return the cache folder: LAKEHOUSE_CACHE, or lakehouse in the user's cache folder."""
    return Path(os.environ.get("LAKEHOUSE_CACHE") or platformdirs.user_cache_dir("lakehouse")).resolve()


def locked(servers: Collection[str] | None = None, lock: Path | None = None) -> list[Jar]:
    """Return the locked artifacts.

    Args:
        servers: The servers that use them; None for all.
        lock: The lock file; by default, that of the embedded stack.
    """
    lines = (line.split() for line in (lock or LOCK).read_text().splitlines() if not line.startswith("#"))
    jars = [Jar(server, sha256, int(size), path) for server, sha256, size, path in lines]
    return [jar for jar in jars if servers is None or jar.server in servers]


def paths(server: str, lock: Path | None = None) -> list[Path]:
    """Return the paths of a server's artifacts, which all exist: Java would ignore a missing file of its class path."""
    jars = locked([server], lock)
    if absent := [jar.path.name for jar in jars if not jar.path.exists()]:
        raise LakehouseError(
            f"{len(absent)} Java artifacts of {server} are not in {cache()}, {absent[0]} first. Download them with "
            f"`lakehouse up`"
        )
    return [jar.path for jar in jars]


def unpacked(server: str) -> Path:
    """Return the folder of a server's unpacked archive, which exists after `fetch`."""
    (jar,) = locked([server])
    return cache() / "unpacked" / f"{server}-{jar.sha256[:16]}"


def missing(servers: Collection[str] | None = None) -> list[Jar]:
    """Return the artifacts that `fetch` would download: those that are absent or differ from the lock."""
    return _Verified(cache()).missing(locked(servers))


def fetch(servers: Collection[str], progress: Progress | None = None, lock: Path | None = None) -> None:
    """Download and verify the missing artifacts of these servers, and unpack archives.

    Verified artifacts stay in the cache if a later download fails.

    Args:
        servers: Names of servers in the lock.
        progress: Display of downloads.
        lock: The lock file; by default, that of the embedded stack.
    """
    verified = _Verified(cache())
    with explain_full_disk(cache()):
        if absent := verified.missing(locked(servers, lock)):
            (cache() / "jars").mkdir(parents=True, exist_ok=True)
            with ThreadPoolExecutor(8) as pool:
                for jar in pool.map(lambda jar: _download(jar, progress), absent):
                    verified.add(jar)
            verified.save()
        for jar in locked(servers, lock):
            if jar.path.name.endswith(".tar.gz") and not unpacked(jar.server).exists():
                with _scratch(cache() / "unpacked") as folder:
                    shutil.unpack_archive(jar.path, folder)
                    _move(folder, unpacked(jar.server))


def maven(folder: Path, progress: Progress | None = None) -> MavenContext:
    """Open the Maven repository, or its mirror at LAKEHOUSE_MAVEN_URL.

    Args:
        folder: Folder for downloads, which are not verified.
        progress: Display of downloads.
    """

    @contextlib.contextmanager
    def bar(name: str, total: int) -> Iterator[Callable[[int], None]]:
        assert progress is not None
        task = progress.add_task(name, total=total)
        try:
            yield lambda count: progress.advance(task, count)
        finally:
            progress.remove_task(task)

    resolver = PythonResolver(progress_callback=bar if progress else None)
    mirror = os.environ.get("LAKEHOUSE_MAVEN_URL")
    remote_repos = {"mirror": mirror.rstrip("/")} if mirror else None
    return MavenContext(resolver, repo_cache=folder, remote_repos=remote_repos, timeout=60)


def _download(jar: Jar, progress: Progress | None) -> Jar:
    """Download one artifact to a scratch folder and move it to the cache, which never contains incomplete files."""
    group, artifact, version, classifier, packaging = jar.coordinates
    with _scratch(cache() / "downloads") as folder:
        component = maven(folder, progress).project(group, artifact).at_version(version)
        try:
            file = component.artifact(classifier, packaging).resolve()
        except (requests.RequestException, RuntimeError) as error:  # jgo raises RuntimeError for "not found"
            reason = type(error).__name__ if isinstance(error, requests.RequestException) else "not found"
            raise LakehouseError(
                f"{jar.path.name} could not be downloaded from the Maven repository ({reason}). Nothing was started."
                " Check the network, or set LAKEHOUSE_MAVEN_URL to a mirror, and run "
                "`lakehouse up` again, which keeps complete downloads"
            ) from error
        if (sha256 := _sha256(file)) != jar.sha256:
            raise LakehouseError(
                f"{jar.path.name} differs from jars.lock: its SHA-256 is {sha256} instead of {jar.sha256}. It was"
                " deleted and nothing was started. Run `lakehouse up` again; if the error remains, the repository or"
                " the lock was tampered with"
            )
        _move(file, jar.path)
    return jar


class _Verified:
    """Record of the verified files in the cache, which avoids hashing 400 MB at each start.

    A file counts as verified as long as its size and modification time are those at its verification.
    """

    def __init__(self, folder: Path):
        self._file = folder / "verified.json"
        try:
            self._stamps: dict[str, list] = json.loads(self._file.read_text())
        except (FileNotFoundError, ValueError):
            self._stamps = {}

    def missing(self, jars: list[Jar]) -> list[Jar]:
        """Return the jars that are absent or differ from the lock; the others are recorded as verified."""
        before = dict(self._stamps)
        absent = [jar for jar in jars if not self._is_good(jar)]
        if before != self._stamps:
            self.save()
        return absent

    def add(self, jar: Jar) -> None:
        self._stamps[jar.maven_path] = self._stamp(jar)

    def save(self) -> None:
        write_atomically(self._file, json.dumps(self._stamps, indent=0))

    def _is_good(self, jar: Jar) -> bool:
        if not jar.path.exists() or jar.path.stat().st_size != jar.bytes:
            return False
        if self._stamps.get(jar.maven_path) == self._stamp(jar):
            return True
        if good := _sha256(jar.path) == jar.sha256:
            self.add(jar)
        return good

    @staticmethod
    def _stamp(jar: Jar) -> list:
        return [jar.sha256, jar.path.stat().st_size, jar.path.stat().st_mtime_ns]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def _scratch(parent: Path) -> Iterator[Path]:
    parent.mkdir(parents=True, exist_ok=True)
    # `_move` may have moved the folder itself.
    with tempfile.TemporaryDirectory(dir=parent, prefix=".new-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _move(source: Path, target: Path) -> None:
    """Move atomically. A folder that another process moved there first has the same content and is kept."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.replace(source, target)
    except OSError:
        if not target.is_dir():
            raise
