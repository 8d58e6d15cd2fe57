"""Hooks of MkDocs that copy files of the repository into the site, so that links work there as on GitHub.

MkDocs, Hooks: https://www.mkdocs.org/user-guide/configuration/#hooks
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PROJECT = Path(__file__).parent.parent
DOCS = "docs/"
COPIES = "repository/"
"""Folder of the copies in the site."""

_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")
"""The target of a relative link or image, without its fragment."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a copy of each file outside of docs/ that a page links to."""
    for page in list(files.documentation_pages()):
        for target in _targets(page.content_string, DOCS + page.src_uri):
            copy = _copy(target)
            if not target.startswith(DOCS) and (PROJECT / target).is_file() and files.get_file_from_path(copy) is None:
                files.append(File.generated(config, copy, abs_src_path=str(PROJECT / target)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace links to files outside of docs/ by links to their copies.

    A link to a file that does not exist is not changed, so that MkDocs reports it, as an error with --strict.
    """
    source = DOCS + page.file.src_uri

    def replaced(link: re.Match[str]) -> str:
        target = _resolved(link[1], source)
        copy = _copy(target)
        if target.startswith(DOCS) or files.get_file_from_path(copy) is None:
            return link[1]
        return posixpath.relpath(copy, posixpath.dirname(page.file.src_uri))

    return _LINK.sub(replaced, markdown)


def _targets(markdown: str, source: str) -> Iterator[str]:
    return (_resolved(link[1], source) for link in _LINK.finditer(markdown))


def _resolved(link: str, source: str) -> str:
    """Return the path in the repository of the target of a link."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def _copy(target: str) -> str:
    """Return the path in the site of a file outside of docs/. Markdown becomes text, and hidden folders visible."""
    return COPIES + target.removeprefix(".") + (".txt" if target.endswith(".md") else "")
