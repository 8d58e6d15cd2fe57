"""Discovery of the project in use: the nearest lakehouse.yaml, whose folder is the project, and the environment."""

import os
from pathlib import Path

from lakehouse.core.errors import ConfigError

FILE = "lakehouse.yaml"
LOCAL = "local"
"""The environment of the embedded stack."""
STATE = ".lakehouse"
"""The folder of the embedded stack's state, beside the configuration."""
_REMEDY = "Nothing was done. Run `lakehouse init DIR`, change to the folder of a project, or set LAKEHOUSE_CONFIG"


def config_path(folder: Path | None = None) -> Path:
    """Return the absolute path of the configuration.

    That is LAKEHOUSE_CONFIG, or the lakehouse.yaml that is found first in a folder and the folders above it. The search
    ends at the root of a repository (a folder with `.git`) and at the home folder.

    Args:
        folder: Where the search begins; None is the current folder.

    Raises:
        ConfigError: There is no such file, or the file that was found belongs to another user. The configuration names
            code to import, so that its owner can run code as the user of this process.
    """
    if named := os.environ.get("LAKEHOUSE_CONFIG"):
        if not (path := Path(os.path.abspath(named))).is_file():
            raise ConfigError(f"LAKEHOUSE_CONFIG names {path}, which is no file", "Nothing was done", "Correct it")
        return path
    try:
        start = (folder or Path.cwd()).resolve()
    except FileNotFoundError as error:
        raise ConfigError("The current folder does not exist any more", _REMEDY) from error
    for place in (start, *start.parents):
        path = place / FILE
        if path.is_file():
            return _of_this_user(path)
        if os.path.lexists(path):
            what = "a folder" if path.is_dir() else "no file, or a link to one that does not exist"
            raise ConfigError(f"{path} is {what}", "Nothing was done", "Replace it by the configuration, or rename it")
        if (place / ".git").exists() or place == _home():
            break
    above = f" and in the folders above it, up to {place}" if place != start else ""
    raise ConfigError(f"There is no {FILE} in {start}{above}", _REMEDY)


def project() -> Path:
    """Return the folder of the configuration."""
    return config_path().resolve().parent


def environment_name() -> str:
    """Return the name of the environment in use: LAKEHOUSE_ENV, or `local`."""
    return os.environ.get("LAKEHOUSE_ENV") or LOCAL


def is_obvious() -> bool:
    """Return whether a user expects the configuration in use: lakehouse.yaml in the current folder, and `local`."""
    return config_path() == Path.cwd() / FILE and environment_name() == LOCAL


def _of_this_user(path: Path) -> Path:
    # Images of containers often have files of root, who could change this process anyway.
    if path.stat().st_uid in (os.geteuid(), 0):
        return path
    raise ConfigError(
        f"{path} belongs to another user, who could run code as you",
        "Nothing was read",
        "Set LAKEHOUSE_CONFIG to the file if you trust it",
    )


def _home() -> Path | None:
    """Return the resolved home folder of the user, or None if there is none."""
    try:
        return Path.home().resolve()
    except RuntimeError:
        return None
