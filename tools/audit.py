"""Audit of dependencies and workflows: `make audit`.

Exit codes: 0, all checks passed; 1, a check failed; 3, no check failed, but some could not be made.
"""

import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import requests
from packageurl import PackageURL

from lakehouse.core.errors import LakehouseError
from lakehouse.local import jars
from tools import leaks, sbom
from tools.repository import PROJECT

INCOMPLETE = 3
OSV = "https://api.osv.dev"
BATCH = 1000
"""Maximum queries of one request to OSV."""


@dataclass
class Outcome:
    """Outcome of one check, as sentences for display."""

    wrong: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)


def security_rules() -> Outcome:
    """Run ruff as `make lint` does; pyproject.toml enables its security rules (S)."""
    return _program("ruff", "check", "--output-format", "concise", "--quiet")


def workflows() -> Outcome:
    """Run zizmor offline on the workflows and Dependabot's configuration."""
    return _program("zizmor", "--offline", "--no-progress", "--quiet", "--pedantic", ".github")


def pins() -> Outcome:
    """Run the tests of locks and workflows: hashes of packages, commits of actions, secrets by step."""
    tests = [f"tests/unit/test_{name}.py" for name in ("lock", "workflows", "third_party_licences")]
    return _program("pytest", "--quiet", "--no-header", "--noconftest", "-p", "no:cacheprovider", *tests)


def secrets() -> Outcome:
    """Search tracked files and the history for secrets."""
    try:
        messages = [
            f"{leak}. Revoke it, or add it to {leaks.BASELINE.relative_to(PROJECT)} if it is not a secret."
            for leak in leaks.leaks()
        ]
        shallow = leaks.is_shallow()
    except (OSError, subprocess.CalledProcessError):
        return Outcome(unchecked=["secrets, as this folder is not a git checkout"])
    return Outcome(messages, ["secrets in older commits, as this checkout is shallow"] if shallow else [])


def java_artefacts() -> Outcome:
    """Download the locked jars to the cache and verify them, so that their contents can be listed."""
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
    """Query OSV for vulnerabilities of the components of the bill of materials."""
    urls = list(sbom.package_urls())
    try:
        known = known_vulnerabilities(urls)
    except requests.RequestException as error:
        return Outcome(unchecked=[f"known vulnerabilities, as osv.dev did not answer ({type(error).__name__})"])
    unidentified = sorted({url.removeprefix("pkg:generic/") for url in urls if url.startswith("pkg:generic/")})
    for name in unidentified:
        print(f"      not in any database, as its group is unknown: {name}")
    return Outcome([f"{package}: {', '.join(sorted(ids))}" for package, ids in sorted(known.items())])


def vulnerabilities_offline() -> Outcome:
    """Report the check that a run without the network omits."""
    return Outcome(unchecked=["known vulnerabilities: `make audit ONLINE=1` and the daily workflow query osv.dev"])


def run(checks: list[Callable[[], Outcome]]) -> int:
    """Run checks in order, print their outcomes, and return the exit code."""
    wrong = unchecked = 0
    for check in checks:
        outcome = check()
        name = check.__name__.replace("_", " ")
        state = "WRONG" if outcome.wrong else "part" if outcome.unchecked else "ok"
        print(f"{state:<6}{name}", *(f"      {message}" for message in outcome.wrong), sep="\n", flush=True)
        print(*(f"      NOT CHECKED: {message}\n" for message in outcome.unchecked), sep="", end="")
        wrong += len(outcome.wrong)
        unchecked += len(outcome.unchecked)
    if wrong:
        return 1
    return INCOMPLETE if unchecked else 0


def main(arguments: list[str]) -> int:
    """Run all checks; those that need the network only with `--online`."""
    local = [security_rules, workflows, pins, secrets]
    if "--online" in arguments:
        return run([*local, java_artefacts, bill_of_materials, vulnerabilities])
    return run([*local, bill_of_materials, vulnerabilities_offline])


def _program(name: str, *arguments: str) -> Outcome:
    """Run a program of the virtual environment. If it fails, the outcome is its output."""
    program = Path(sys.executable).with_name(name)
    result = subprocess.run([program, *arguments], cwd=PROJECT, capture_output=True, text=True)
    return Outcome((result.stdout + result.stderr).splitlines() if result.returncode else [])


def known_vulnerabilities(urls: Iterable[str], server: str = OSV) -> dict[str, list[str]]:
    """Return the identifiers of known vulnerabilities by package URL.

    Args:
        urls: Package URLs of components. Only wheels and jars of known groups are in the database.
        server: The address of OSV.

    Raises:
        requests.RequestException: OSV cannot be reached or returns an error.
    """
    packages = sorted({_bare(url) for url in urls if url.startswith(("pkg:pypi/", "pkg:maven/"))})
    by_package: dict[str, list[str]] = {}
    pending = [{"package": {"purl": package}} for package in packages]
    while pending:
        queries, pending = pending[:BATCH], pending[BATCH:]
        response = requests.post(f"{server}/v1/querybatch", json={"queries": queries}, timeout=60)
        response.raise_for_status()
        for query, result in zip(queries, response.json()["results"], strict=True):
            if vulnerabilities := result.get("vulns"):
                by_package.setdefault(query["package"]["purl"], []).extend(
                    vulnerability["id"] for vulnerability in vulnerabilities
                )
            if token := result.get("next_page_token"):
                pending.append({**query, "page_token": token})
    return by_package


def _bare(url: str) -> str:
    """Return a package URL without classifier and type, since OSV identifies artefacts by group, name and version."""
    package = PackageURL.from_string(url)
    return str(PackageURL(package.type, package.namespace, package.name, package.version))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
