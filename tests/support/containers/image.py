"""The image of containers/Dockerfile, built by Buildah on a root file system of Debian, and processes in it.

No registry of images is used: debootstrap makes the base image. Processes run as the image's user in a file system that
is read-only except for /tmp, with the network of this machine. They have no cgroup, and of namespaces only that of
mounts.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tools.repository import PROJECT

TOOLS = ("buildah", "debootstrap", "unshare")
SUITE, MIRROR = "bookworm", "http://deb.debian.org/debian"
PACKAGES = "ca-certificates,python3,python3-venv"
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
BASE, IMAGE = "localhost/base", "localhost/lakehouse"
SECONDS = 1800
"""Limit of a step, some of which download packages."""

START = """
set -e
root=$1 project=$2 user=$3; shift 3
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/tmp"
mount --bind /etc/hosts "$root/etc/hosts"
mount --bind "$project" "$root/project"
mount -o remount,bind,ro "$root/project"
exec chroot --userspec="$user" "$root" "$@"
"""
"""A shell script: mount the image, this machine's names of hosts and a project, and run a command in the image."""


@dataclass(frozen=True)
class Image:
    """A built image, whose file system is mounted.

    Attributes:
        root: The folder with its files.
        settings: Its configuration (OCI Image Specification, Image Configuration).
        builder: Builds images on top of it.
    """

    root: Path
    settings: Mapping[str, Any]
    builder: Buildah

    def start(self, project: Path, *command: str, **variables: str) -> subprocess.Popen[str]:
        """Start a process in the image.

        Args:
            project: The folder that becomes /project, which is read-only too.
            command: The command; if empty, that of the image.
            variables: Further environment variables.
        """
        environment = [*self.settings["Env"], *(f"{name}={value}" for name, value in variables.items())]
        inside = ["/usr/bin/env", "-i", "-C", self.settings["WorkingDir"], *environment]
        return subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", START, "sh", self.root, project, self.settings["User"]]
            + [*inside, *(command or self.settings["Cmd"])],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, project: Path, *command: str, **variables: str) -> tuple[int, str]:
        """Run a process in the image, and return its exit code and its output."""
        process = self.start(project, *command, **variables)
        output, _ = process.communicate(timeout=SECONDS)
        return process.returncode, output


@pytest.fixture(scope="session")
def image() -> Iterator[Image]:
    """The image of the files of this project, if this machine can build it."""
    if lacking := [name for name in TOOLS if shutil.which(name) is None]:
        pytest.skip(f"{', '.join(lacking)} not installed")
    if os.getuid():
        pytest.skip("only root can build an image without a container engine")
    with TemporaryDirectory() as name:
        folder = Path(name)
        buildah = Buildah(folder)
        _add_base(buildah, folder / "root")
        context = folder / "context"
        (context / "dist").mkdir(parents=True)
        for file in ("requirements.lock", "pyproject.toml"):
            shutil.copy(PROJECT / file, context)
        shutil.copytree(PROJECT / "containers", context / "containers")
        wheel = [str(Path(sys.executable).parent / "uv"), "build", "--quiet", "--wheel", "--no-build-isolation"]
        _run([*wheel, "--python", sys.executable, "--out-dir", context / "dist", PROJECT])
        yield buildah.build(context / "containers/Dockerfile", context, IMAGE, "--build-arg", f"BASE_IMAGE={BASE}")


class Buildah:
    """Buildah with its own storage."""

    def __init__(self, folder: Path) -> None:
        self._command = [
            "buildah",
            "--root",
            folder / "storage",
            "--runroot",
            folder / "run",
            "--storage-driver",
            "vfs",
        ]

    def __call__(self, command: str, *arguments: str | Path) -> str:
        return _run([*self._command, command, *arguments]).strip()

    def build(self, dockerfile: Path, context: Path, name: str, *options: str) -> Image:
        """Build an image, and mount its file system."""
        self("build", "--isolation", "chroot", *options, "-t", name, "-f", dockerfile, context)
        settings = json.loads(self("inspect", "--type", "image", name))["OCIv1"]["config"]
        return Image(Path(self("mount", self("from", name))), settings, self)


def _add_base(buildah: Buildah, root: Path) -> None:
    """Make the base image: Debian with Python, the usual search path, and the authorities of this machine."""
    _run(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, root, MIRROR])
    (root / "usr/bin/python").symlink_to("python3")
    shutil.copy(AUTHORITIES, root / AUTHORITIES.lstrip("/"))
    (root / "etc/pip.conf").write_text(f"[global]\ncert = {AUTHORITIES}\n")
    (root / "etc/uv").mkdir()
    (root / "etc/uv/uv.toml").write_text("native-tls = true\n")
    (root / "etc/hosts").touch()
    container = buildah("from", "scratch")
    buildah("add", "--quiet", container, root, "/")
    buildah("config", "--env", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", container)
    buildah("commit", "--quiet", container, BASE)


def _run(command: Sequence[str | Path]) -> str:
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)
    assert result.returncode == 0, f"{command}: {result.stdout[-2000:]}{result.stderr[-2000:]}"
    return result.stdout
