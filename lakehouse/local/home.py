"""The state folder, which contains all persistent state of the embedded stack, with its lock and credentials."""

from __future__ import annotations

import base64
import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from lakehouse.config import discovery
from lakehouse.core.errors import LakehouseError

NEEDED_BYTES = 2 * 1024**3
"""Free disk space below which nothing is started, so that Kafka and S3 do not fill the disk during a write."""

LOW_BYTES = 1024**3
"""Free disk space below which the status of a running stack has a warning."""

SOCKET_PATH_BYTES = 103
"""Maximum length of a Unix socket's path: 107 bytes on Linux, 103 on macOS."""
SOCKET_NAME_BYTES = 43
"""Length of the longest socket name, Spark's `/.<uuid>.sock`."""

# Separators in Java class paths, Kafka's log.dirs and JDBC URLs, none of which has an escape for them.
_FORBIDDEN = set(":;,*%#\\\n")


@dataclass(frozen=True)
class Home:
    """A state folder, created on the first write."""

    path: Path

    @classmethod
    def default(cls) -> Home:
        """Return the folder at LAKEHOUSE_HOME, or .lakehouse beside the configuration."""
        path = Path(os.environ.get("LAKEHOUSE_HOME") or discovery.project() / discovery.STATE).resolve()
        try:
            (path / "lock").exists()
        except PermissionError as error:
            raise LakehouseError(
                f"The state folder {path} is not accessible: {error.strerror}. Nothing was done. Run the command as the"
                " user who owns it, or set LAKEHOUSE_HOME to another folder"
            ) from error
        return cls(path)

    @property
    def endpoints(self) -> Path:
        """The ports of the servers, as JSON."""
        return self.path / "endpoints.json"

    @property
    def catalog(self) -> Path:
        """The Iceberg catalog, a SQLite file."""
        return self.folder("catalog") / "catalog.db"

    def folder(self, name: str) -> Path:
        """Return a folder in this one, and create it if missing. Only the user can enter it and the folders above that
        this method creates."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        folder = self.path
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            write_atomically(folder / ".gitignore", "*\n")
        for part in Path(name).parts:
            folder /= part
            folder.mkdir(exist_ok=True, mode=0o700)
        return folder

    def sockets(self) -> Path:
        """Return a folder for Unix sockets that only the user can enter: in this one, or in /tmp if its path is too
        long or not valid in a URI, which gRPC requires.
        """
        inside = self.path / "run"
        fits = len(os.fsencode(inside)) + SOCKET_NAME_BYTES <= SOCKET_PATH_BYTES
        if fits and quote(str(inside)) == str(inside):
            return self.folder("run")
        folder = self._short()
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise LakehouseError(
                f"{folder}, the folder for the sockets of the stack, belongs to another user or is open to others."
                f" Nothing was started. Set LAKEHOUSE_HOME to a path shorter than {self.path}, or remove {folder}"
            )
        return folder

    def remove_sockets(self) -> None:
        """Remove the folder that `sockets` created in /tmp. All servers must have ended."""
        shutil.rmtree(self._short(), ignore_errors=True)

    def _short(self) -> Path:
        # Neither TMPDIR, which may differ between commands, nor XDG_RUNTIME_DIR, which the system deletes at the end of
        # the user's last session.
        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]
        return Path(f"/tmp/lakehouse-{os.getuid()}-{digest}")  # noqa: S108  its owner and mode are verified

    def log(self, server: str) -> Path:
        """Return the path of a server's log."""
        return self.path / "logs" / f"{server}.log"

    def require_usable(self) -> None:
        """Check the folder's path, that it can be written, and the free disk space."""
        effect = "Nothing was started"
        if bad := _FORBIDDEN & set(str(self.path)):
            raise LakehouseError(
                f"The path of the state folder {self.path} contains {' '.join(map(repr, sorted(bad)))}, which Java"
                " class paths cannot contain",
                effect,
                "Set LAKEHOUSE_HOME to another folder",
            )
        try:
            # On a file system that refuses writes, such as /proc, the free space is 0 or has no meaning.
            tempfile.TemporaryFile(dir=self._existing()).close()
        except OSError as error:
            raise LakehouseError(
                f"The state folder {self.path} cannot be written: {error.strerror}",
                effect,
                "Set LAKEHOUSE_HOME to a folder that you can write to",
            ) from error
        if (free := self.free_bytes()) < NEEDED_BYTES:
            raise LakehouseError(
                f"The disk of {self.path} has {free / 1024**3:.1f} GiB free, and the stack needs"
                f" {NEEDED_BYTES / 1024**3:.0f}",
                effect,
                "Free some space, or set LAKEHOUSE_HOME to another disk",
            )

    def space_warning(self) -> str | None:
        """Return a warning if a running stack has too little free disk space, otherwise None."""
        if (free := self.free_bytes()) >= LOW_BYTES:
            return None
        return (
            f"The disk of {self.path} has {free / 1024**3:.1f} GiB free. When it is full, Kafka stops and runs fail;"
            " complete data is not affected. Free some space, then run `lakehouse up` to start stopped servers"
        )

    def free_bytes(self) -> int:
        """Return the free space on the disk of this folder, in bytes. The folder need not exist."""
        return shutil.disk_usage(self._existing()).free

    def _existing(self) -> Path:
        """Return this folder, or the nearest folder above it that exists."""
        return next(path for path in (self.path, *self.path.parents) if path.exists())

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Exclude another `up` or `down`. The kernel releases the lock when its process ends."""
        path = self.folder(".") / "lock"
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise LakehouseError(f"The lock {path} is a symbolic link. Nothing was started. Remove it") from error
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise LakehouseError(
                    f"The lock {path} cannot be written: {error.strerror}. Nothing was changed. Run the command as the"
                    " user who owns it"
                ) from error
            raise
        with os.fdopen(handle, "r+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = lock.read().strip() or "unknown"
                raise LakehouseError(
                    f"Another lakehouse command (process {holder}) is starting or stopping the stack in {self.path}."
                    " Nothing was changed. Wait for it to end, or stop it, then run the command again"
                ) from error
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield


def write_atomically(path: Path, content: str | bytes) -> Path:
    """Write a file that only the user can read. Neither a reader nor a crash can observe a partial file."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
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
    """Replace the errors of a full disk by a message with the remedy."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise LakehouseError(
            f"The disk is full: {error.filename or path} could not be written. Complete data is not affected."
            " Free some space and run the command again"
        ) from error


@dataclass(frozen=True)
class Credentials:
    """The credentials of one state folder."""

    aws_access_key_id: str
    aws_secret_access_key: str = field(repr=False)
    spark_token: str = field(repr=False)
    kafka_password: str = field(repr=False)
    ui_token: str = field(repr=False)
    """Token for Dagster's UI and API."""
    snowflake_private_key_path: Path
    snowflake_public_key: str
    """Base64 of the public key's DER form, for Snowflake's RSA_PUBLIC_KEY."""

    @classmethod
    def of(cls, home: Home) -> Credentials:
        """Return the credentials of a state folder, and generate missing ones."""
        folder = home.folder("secrets")
        key_path = folder / "snowflake_rsa_key.p8"
        return cls(
            aws_access_key_id="lakehouse",
            aws_secret_access_key=_token(folder / "aws_secret_access_key"),
            spark_token=_token(folder / "spark_token"),
            kafka_password=_token(folder / "kafka_password"),
            ui_token=_token(folder / "ui_token"),
            snowflake_private_key_path=key_path,
            snowflake_public_key=_public_key(key_path),
        )


def _token(path: Path) -> str:
    if not path.exists() or not path.read_text():
        write_atomically(path, secrets.token_urlsafe(30))
    return path.read_text()


def _public_key(path: Path) -> str:
    if not path.exists():
        new = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        encoding, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        write_atomically(path, new.private_bytes(encoding, pkcs8, serialization.NoEncryption()))
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    der = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(der).decode()
