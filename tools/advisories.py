"""Known vulnerabilities of components, from the OSV database."""

from collections.abc import Iterable

import requests
from packageurl import PackageURL

OSV = "https://api.osv.dev"
BATCH = 1000
"""Maximum queries of one request to OSV."""


def known(urls: Iterable[str], server: str = OSV) -> dict[str, list[str]]:
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
