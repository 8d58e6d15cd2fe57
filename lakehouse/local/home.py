"""The state folder: everything that the embedded stack keeps between two runs, and its lock."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from lakehouse.config.loader import PROJECT
from lakehouse.core.errors import LakehouseError
from lakehouse.core.polling import retry

NEEDED_BYTES = 2 * 1024**3
"""Free disk space below which nothing is started: Kafka and S3 must not meet a full disk in the middle of a write."""

LOW_BYTES = 1024**3
"""Free disk space below which a running stack is in danger."""

SOCKET_PATH_BYTES = 103
"""The longest path of a Unix socket: 107 bytes in Linux, 103 in macOS."""
SOCKET_NAME_BYTES = 43
"""The longest name of one, Spark's `/.<uuid>.sock`."""

# They separate entries in Java class paths, Kafka's log.dirs and JDBC URLs, none of which can escape them.
_FORBIDDEN = set(":;,*%#\\\n")


@dataclass(frozen=True)
class Home:
    """A state folder, made when first written to."""

    path: Path

    @classmethod
    def default(cls) -> Home:
        """LAKEHOUSE_HOME, or .lakehouse in the project's folder."""
        return cls(Path(os.environ.get("LAKEHOUSE_HOME") or PROJECT / ".lakehouse").resolve())

    @property
    def endpoints(self) -> Path:
        """The ports of the servers, as JSON."""
        return self.path / "endpoints.json"

    @property
    def catalog(self) -> Path:
        """The Iceberg catalog, a SQLite file."""
        return self.folder("catalog") / "catalog.db"

    def folder(self, name: str) -> Path:
        """Return a folder in this one. It is made if missing; like every folder above it that is made here, only its
        owner can enter it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        folder = self.path
        folder.mkdir(exist_ok=True, mode=0o700)
        for part in Path(name).parts:
            folder /= part
            folder.mkdir(exist_ok=True, mode=0o700)
        return folder

    def sockets(self) -> Path:
        """A folder for Unix sockets that only its owner can enter: in this one, or a short one for it in /tmp.

        Raises: LakehouseError when the one in /tmp is not ours alone.
        """
        inside = self.path / "run"
        if len(os.fsencode(inside)) + SOCKET_NAME_BYTES <= SOCKET_PATH_BYTES:
            return self.folder("run")
        folder = self._short()
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise LakehouseError(
                f"{folder} is not a folder of yours alone, and servers of the stack would have their sockets there."
                f" Nothing was started. Set LAKEHOUSE_HOME to a path shorter than {self.path}, or remove {folder}"
            )
        return folder

    def remove_sockets(self) -> None:
        """Remove what `sockets` made in /tmp. Nothing may be listening there any more."""
        shutil.rmtree(self._short(), ignore_errors=True)

    def _short(self) -> Path:
        # Neither TMPDIR, which may differ from one command to the next, nor XDG_RUNTIME_DIR, which ends with the
        # user's last session.
        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]
        return Path(f"/tmp/lakehouse-{os.getuid()}-{digest}")  # noqa: S108  its owner and mode are verified

    def log(self, server: str) -> Path:
        """The log file of a server."""
        return self.path / "logs" / f"{server}.log"

    def require_usable(self) -> None:
        """Raises: LakehouseError when the folder's name or the disk's free space cannot carry the stack."""
        if bad := _FORBIDDEN & set(str(self.path)):
            raise LakehouseError(
                f"The state folder {self.path} has {' '.join(map(repr, sorted(bad)))} in its name, which Java class"
                " paths cannot hold. Nothing was started. Set LAKEHOUSE_HOME to another folder"
            )
        if (free := self.free_bytes()) < NEEDED_BYTES:
            raise LakehouseError(
                f"The disk of {self.path} has {free / 1024**3:.1f} GiB free, and the stack needs"
                f" {NEEDED_BYTES / 1024**3:.0f}. Nothing was started. Free some space, or set LAKEHOUSE_HOME to another"
                " disk"
            )

    def space_warning(self) -> str | None:
        """Return what is wrong with the free space for a stack that runs; None while there is enough."""
        if (free := self.free_bytes()) >= LOW_BYTES:
            return None
        return (
            f"The disk of {self.path} has {free / 1024**3:.1f} GiB free. When it is full, Kafka stops and runs fail;"
            " what was complete before stays. Free some space, then run `lakehouse up`, which starts what has stopped"
        )

    def free_bytes(self) -> int:
        """Free space on the disk that holds (or would hold) this folder, in bytes."""
        return shutil.disk_usage(next(p for p in (self.path, *self.path.parents) if p.exists())).free

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """One `up` or `down` at a time. The kernel frees the lock when its holder dies.

        Raises: LakehouseError when another process holds it.
        """
        with hold(
            self.folder(".") / "lock",
            lambda holder: (
                f"Another lakehouse command ({holder}) is starting or stopping the stack in {self.path}."
                " Nothing was changed. Wait for it to end, or stop it, then try again"
            ),
        ):
            yield


@contextmanager
def hold(path: Path, busy: Callable[[str], str], seconds: float = 0) -> Iterator[None]:
    """Hold the lock of a file, which is made if missing. The kernel frees the lock when its holder dies.

    Args:
        path: The file, in a folder that only its owner can write to.
        busy: Makes the error message from the name of the process that holds the lock.
        seconds: How long to wait for the lock.

    Raises:
        LakehouseError: Another process holds the lock, or the file is a symbolic link.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise LakehouseError(f"The lock {path} is a symbolic link. Nothing was started. Remove it") from error
    with os.fdopen(handle, "r+") as lock:
        try:
            retry(
                lambda: fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB),
                when=lambda error: isinstance(error, BlockingIOError),
                pause=0.1,
                deadline_seconds=seconds,
            )
        except BlockingIOError as error:
            raise LakehouseError(busy(f"process {lock.read().strip() or 'unknown'}")) from error
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def write_atomically(path: Path, content: str | bytes) -> Path:
    """Write a file, readable by its owner only, so that a reader or a crash never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp makes it 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return path


@contextmanager
def explain_full_disk(path: Path) -> Iterator[None]:
    """Turns 'no space left on device' into one sentence.

    Raises: LakehouseError.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise LakehouseError(
            f"The disk is full: {error.filename or path} could not be written. What was complete before is untouched."
            " Free some space and try again"
        ) from error
