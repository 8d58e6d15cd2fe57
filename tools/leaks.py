"""Search for secrets in the tracked files and in all lines that commits added, with the detectors of detect-secrets.

Its own scan has no history, and omits a line by heuristics about its file and its words, in which a secret may be.
"""

import hashlib
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.plugins.base import RegexBasedDetector
from detect_secrets.plugins.basic_auth import BasicAuthDetector
from detect_secrets.plugins.keyword import KeywordDetector

from tools.repository import PROJECT

BASELINE = Path(__file__).with_name("leaks.baseline")
_TOO_WEAK = {"Base64HighEntropyString", "HexHighEntropyString", "IPPublicDetector"}
"""Detectors by entropy or address alone, which report hashes as secrets."""
_OUTSIDE_OF_TESTS = (KeywordDetector, BasicAuthDetector)
"""Detectors by context. Tests contain invented passwords, so these detectors search the other tracked files only."""
_HASH = re.compile(r"\s*--hash=sha256:[0-9a-f]{64}( \\)?")


class ConfluentDetector(RegexBasedDetector):
    """Secrets of Confluent Cloud's API keys, which begin with `cflt`."""

    secret_type = "Confluent Cloud API Secret"  # noqa: S105 (the name of a kind)
    denylist = (re.compile(r"(?<![A-Za-z0-9+/])cflt[A-Za-z0-9+/]{40,}(?![A-Za-z0-9+/])"),)


class FineGrainedGitHubDetector(RegexBasedDetector):
    """GitHub's fine-grained personal access tokens."""

    secret_type = "GitHub Fine-Grained Token"  # noqa: S105 (the name of a kind)
    denylist = (re.compile(r"github_pat_\w{22}_\w{59}"),)


@dataclass(frozen=True)
class Leak:
    """A possible secret. Only its fingerprint is shown, which suffices to find it and to add it to the baseline."""

    where: str
    kind: str
    fingerprint: str

    def __str__(self) -> str:
        return f"{self.where}: {self.kind} {self.fingerprint}"


def leaks(folder: Path = PROJECT, baseline: Path = BASELINE) -> list[Leak]:
    """Return possible secrets that are not in the baseline, without duplicates.

    Raises:
        subprocess.CalledProcessError: The folder is not a git checkout.
    """
    accepted = {line.split()[0] for line in baseline.read_text().splitlines() if line and not line.startswith("#")}
    kinds = get_mapping_from_secret_type_to_class().values()
    detectors = [kind() for kind in kinds if kind.__name__ not in _TOO_WEAK and kind not in _OUTSIDE_OF_TESTS]
    detectors += [ConfluentDetector(), FineGrainedGitHubDetector()]
    by_context = [kind() for kind in _OUTSIDE_OF_TESTS]
    by_fingerprint: dict[str, Leak] = {}
    searched: set[str] = set()
    for where, line in (*_tracked(folder), *_history(folder)):
        if line in searched or _HASH.fullmatch(line):
            continue
        searched.add(line)
        secrets = [(detector.secret_type, secret) for detector in detectors for secret in detector.analyze_string(line)]
        if not where.startswith(("tests/", "commit ")):
            name = where.split(":")[0]
            secrets += [(s.type, s.secret_value) for detector in by_context for s in detector.analyze_line(name, line)]
        for kind, secret in secrets:
            fingerprint = hashlib.sha256(secret.encode()).hexdigest()[:16]
            if fingerprint not in accepted:
                by_fingerprint.setdefault(fingerprint, Leak(where, kind, fingerprint))
    return list(by_fingerprint.values())


def is_shallow(folder: Path = PROJECT) -> bool:
    """Return whether a part of the history is missing in the checkout."""
    return _git(folder, "rev-parse", "--is-shallow-repository").strip() == "true"


def _tracked(folder: Path) -> Iterator[tuple[str, str]]:
    for name in _git(folder, "ls-files", "-z").split("\0"):
        path = folder / name
        if name and path.is_file():
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
                yield f"{name}:{number}", line


def _history(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the lines that commits reachable from HEAD added, including merges."""
    where = ""
    for line in _git(folder, "log", "--patch", "--cc", "--unified=0", "--no-color", "--format=commit %h").split("\n"):
        if line.startswith("commit "):
            where = line
        elif line.startswith("+") and not line.startswith("+++ "):
            yield where, line[1:]


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True).stdout.decode(errors="replace")
