"""Check what the project depends on and how it is built: `make audit`.

Exit codes: 0, all was checked and is in order; 1, something is wrong; 3, nothing is wrong as far as could be checked.
"""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import requests

from lakehouse.config.loader import PROJECT
from lakehouse.core.errors import LakehouseError
from lakehouse.local import jars
from tools import advisories, leaks, sbom

INCOMPLETE = 3


@dataclass
class Outcome:
    """What one check found: sentences for people."""

    wrong: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)


def security_rules() -> Outcome:
    """Run ruff as `make lint` does: its security rules (S) are among those of pyproject.toml."""
    return _program("ruff", "check", "--output-format", "concise", "--quiet")


def workflows() -> Outcome:
    """Run zizmor over workflows and Dependabot's configuration, without a network."""
    return _program("zizmor", "--offline", "--no-progress", "--quiet", "--pedantic", ".github")


def pins() -> Outcome:
    """Run the tests of locks and workflows: hashes everywhere, actions by commit, secrets per step."""
    tests = [f"tests/unit/test_{name}.py" for name in ("lock", "workflows", "third_party_licences")]
    return _program("pytest", "--quiet", "--no-header", "--noconftest", "-p", "no:cacheprovider", *tests)


def secrets() -> Outcome:
    """Look for secrets in tracked files and history."""
    try:
        found = [
            f"{leak}. Revoke it, or accept it in {leaks.BASELINE.relative_to(PROJECT)} if it is none."
            for leak in leaks.leaks()
        ]
        shallow = leaks.is_shallow()
    except (OSError, subprocess.CalledProcessError):
        return Outcome(unchecked=["secrets, as this folder is not a git checkout"])
    return Outcome(found, ["secrets in older commits, as this checkout is shallow"] if shallow else [])


def java_artefacts() -> Outcome:
    """Bring the locked jars into the cache, each verified, so that their contents can be listed."""
    try:
        jars.fetch({jar.server for jar in jars.locked()})
    except LakehouseError as error:
        return Outcome(unchecked=[str(error)])
    return Outcome()


def bill_of_materials() -> Outcome:
    """Write the bill of materials."""
    unread = sbom.write()
    print(f"      {sbom.PATH.relative_to(PROJECT)}: {sum(1 for _ in sbom.package_urls())} components")
    few = f"the contents of {len(unread)} jars that are not in the cache: `make audit ONLINE=1` downloads them"
    return Outcome(unchecked=[few] if unread else [])


def vulnerabilities() -> Outcome:
    """Ask OSV about the components of the bill of materials."""
    urls = list(sbom.package_urls())
    try:
        known = advisories.known(urls)
    except requests.RequestException as error:
        return Outcome(unchecked=[f"known vulnerabilities, as osv.dev did not answer ({type(error).__name__})"])
    nameless = sorted({url.removeprefix("pkg:generic/") for url in urls if url.startswith("pkg:generic/")})
    for name in nameless:
        print(f"      not in any database, as its group is unknown: {name}")
    return Outcome([f"{package}: {', '.join(sorted(found))}" for package, found in sorted(known.items())])


def vulnerabilities_offline() -> Outcome:
    """Name what a run without the network leaves out."""
    return Outcome(unchecked=["known vulnerabilities: `make audit ONLINE=1` asks osv.dev, and the workflow does daily"])


def run(checks: list[Callable[[], Outcome]]) -> int:
    """Run checks one after the other, print what they found, and return the exit code."""
    wrong = unchecked = 0
    for check in checks:
        outcome = check()
        name = check.__name__.replace("_", " ")
        state = "WRONG" if outcome.wrong else "part" if outcome.unchecked else "ok"
        print(f"{state:<6}{name}", *(f"      {one}" for one in outcome.wrong), sep="\n", flush=True)
        print(*(f"      NOT CHECKED: {one}\n" for one in outcome.unchecked), sep="", end="")
        wrong += len(outcome.wrong)
        unchecked += len(outcome.unchecked)
    if wrong:
        return 1
    return INCOMPLETE if unchecked else 0


def main(arguments: list[str]) -> int:
    """Check everything; with `--online`, what needs the network too."""
    local = [security_rules, workflows, pins, secrets]
    if "--online" in arguments:
        return run([*local, java_artefacts, bill_of_materials, vulnerabilities])
    return run([*local, bill_of_materials, vulnerabilities_offline])


def _program(name: str, *arguments: str) -> Outcome:
    """Run a program of the virtual environment; its output is what is wrong if it fails."""
    program = Path(sys.executable).with_name(name)
    done = subprocess.run([program, *arguments], cwd=PROJECT, capture_output=True, text=True)
    return Outcome((done.stdout + done.stderr).splitlines() if done.returncode else [])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
