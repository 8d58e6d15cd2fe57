"""The configuration of a code location as it was validated, which the runs that it starts use.

A run loads the definitions in a process of its own. If it read lakehouse.yaml again, a file that is being edited would
fail the runs of all topics. The code server therefore records the texts of the files that it validated, under their
hash, and the processes that it starts load these texts. They inherit the name of the record as an environment variable.
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from lakehouse.config import loader
from lakehouse.config.discovery import config_path
from lakehouse.config.model import Config

VARIABLE = "LAKEHOUSE_SNAPSHOT"
"""The process id of the code server and its record, as `<pid>:<file>`. The code server itself reads the files again."""

FOLDER = "lakehouse-configurations"
"""The folder of the records, in DAGSTER_HOME."""


@dataclass
class _Texts:
    """The texts of files, read once."""

    texts: dict[str, str] = field(default_factory=dict)
    is_complete: bool = False
    """Whether the texts are all that the configuration has: a file that was created later counts as empty."""

    def read(self, file: Path) -> str:
        name = str(file.resolve())
        if name not in self.texts and self.is_complete:
            return ""
        if name not in self.texts:
            self.texts[name] = file.read_text()
        return self.texts[name]


def load() -> Config:
    """Return the configuration of a code location: the recorded one in a run, and otherwise that of the files.

    Raises:
        ConfigError: The files are invalid.
    """
    if (record := _inherited()) is not None:
        return loader.load(read=record.read, is_validated=True)
    texts = _Texts()
    config = loader.load(read=texts.read)
    # Without a folder for the record, runs read the files again.
    with suppress(OSError):
        if home := os.environ.get("DAGSTER_HOME"):
            os.environ[VARIABLE] = f"{os.getpid()}:{_store(Path(home), texts)}"
    return config


def _inherited() -> _Texts | None:
    """Return the texts that the code server recorded before it started this process; None in any other process."""
    process, _, file = os.environ.get(VARIABLE, "").partition(":")
    if not file or process == str(os.getpid()) or not Path(file).exists():
        return None
    texts = _Texts(json.loads(Path(file).read_text()), is_complete=True)
    return texts if str(config_path().resolve()) in texts.texts else None


def _store(home: Path, texts: _Texts) -> Path:
    """Write the texts to a file that is named by their hash, and return it."""
    content = json.dumps(texts.texts, sort_keys=True)
    folder = home / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    file = folder / f"{sha256(content.encode()).hexdigest()}.json"
    if not file.exists():
        # Another process may write the same file.
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, encoding="utf-8") as written:
            written.write(content)
        Path(written.name).rename(file)
    return file
