"""Ask the OSV database which components of the bill of materials have known vulnerabilities."""

from collections.abc import Iterable

import requests
from packageurl import PackageURL

OSV = "https://api.osv.dev"
BATCH = 1000
"""As many questions as OSV takes in one request."""


def known(urls: Iterable[str], server: str = OSV) -> dict[str, list[str]]:
    """Return the identifiers of known vulnerabilities by package URL.

    Args:
        urls: Package URLs of wheels and jars. Others, such as jars of unknown group, are in no database.
        server: Where OSV is.

    Raises:
        requests.RequestException: OSV cannot be reached or refuses.
    """
    packages = sorted({_bare(url) for url in urls if url.startswith(("pkg:pypi/", "pkg:maven/"))})
    found: dict[str, list[str]] = {}
    questions = [{"package": {"purl": package}} for package in packages]
    while questions:
        asked, questions = questions[:BATCH], questions[BATCH:]
        response = requests.post(f"{server}/v1/querybatch", json={"queries": asked}, timeout=60)
        response.raise_for_status()
        for question, answer in zip(asked, response.json()["results"], strict=True):
            if vulnerabilities := answer.get("vulns"):
                found.setdefault(question["package"]["purl"], []).extend(one["id"] for one in vulnerabilities)
            if token := answer.get("next_page_token"):
                questions.append({**question, "page_token": token})
    return found


def _bare(url: str) -> str:
    """Drop classifier and type: OSV knows an artefact by group, name and version."""
    package = PackageURL.from_string(url)
    return str(PackageURL(package.type, package.namespace, package.name, package.version))
