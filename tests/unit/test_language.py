"""Names and docstrings follow the section English of CONTRIBUTING.md, as far as a program can decide it."""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache

import pytest

from tools.repository import PROJECT

FILES = subprocess.run(["git", "ls-files"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout.split()
CODE = [name for name in FILES if name.endswith(".py")]
SPECS = "tests/support/clouds/confluent/specs"
SUFFIXES = (".md", ".toml", ".yml", ".yaml", ".sh", ".properties", "Makefile", ".ci/run")
TEXTS = CODE + [name for name in FILES if name.endswith(SUFFIXES) and not name.startswith(("THIRD_PARTY", SPECS))]
RULES = {"CONTRIBUTING.md", "tests/unit/test_language.py"}

CLAUSES = {"What", "Whether", "How", "Who", "Whom", "Whose", "Where", "When", "Which", "Why", "That"}
HISTORY = {
    "found",
    "said",
    "told",
    "made",
    "there",
    "here",
    "own",
    "ours",
    "theirs",
    "those",
    "these",
    "each",
    "answer",
    "given",
}
MAX_TEST_NAME = 66
ARTICLES = r"test_(a|an|the|it|its|he|they|their|that|this|those|these|one|two|each|every|no|any|nobody|nothing|only)_"

SUBSTITUTES = {
    r"\b(said|told|mend|mends|mended|untidy|tidies|tidied)\b": "report, state, repair, compact",
    r"\b(goes|go|went) on\b": "continue, resume",
    r"\bon and on\b": "continuously",
    r"\brehears\w+": "dry run",
    r"\bhops?\b": "stage",
    r"\btak(e|es|ing) (the |all |new |these |those |its )?(records|topics|offsets)\b": "ingest",
    r"\b(tell|tells|telling) (of|about|Dagster|how|that|which|why|what|whether)\b": "report",
    r"\b(stand|stands|stood) (on|at|there|twice|in(?! for))\b": "exist",
    r"\b(set|sets|setting) aside\b": "back off, quarantine",
    r"\b(holds|hold) (again|true|good)\b": "be true, pass",
    r"\b(looked|look) into\b": "verify, examine",
    r"\b(knows|know) nothing of\b": "does not import, is independent of",
    r"\b(is|are) not looked for\b": "is not searched",
}
"""Expressions that stood for a term of the field, by pattern, and that term."""


@cache
def tree(name: str) -> ast.Module:
    return ast.parse((PROJECT / name).read_text())


@cache
def texts() -> dict[str, str]:
    """Return each file's text by name, without line breaks."""
    return {name: re.sub(r"\s+#? ?", " ", (PROJECT / name).read_text()) for name in TEXTS if name not in RULES}


@pytest.fixture(scope="module", autouse=True)
def release_trees():
    """Release a million objects after this module, because each garbage collection would visit them."""
    yield
    tree.cache_clear()
    texts.cache_clear()


def bound_names(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and name of each definition, parameter, variable and attribute that a module binds."""
    for node in ast.walk(module):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def test_bound_names_name_the_thing():
    names = [(name, line, bound) for name in CODE for line, bound in bound_names(tree(name))]
    assert [binding for binding in names if binding[2].strip("_") in HISTORY] == []


def test_docstrings_begin_with_verb_or_noun():
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = [
        (name, ast.get_docstring(node))
        for name in CODE
        for node in ast.walk(tree(name))
        if isinstance(node, documented) and ast.get_docstring(node)
    ]
    assert [(name, text.split("\n")[0]) for name, text in docstrings if text.split()[0] in CLAUSES] == []


def test_test_names_are_short_and_begin_with_operation():
    tests = [
        (name, node.name)
        for name in CODE
        for node in ast.walk(tree(name))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    assert [test for test in tests if len(test[1]) > MAX_TEST_NAME or re.match(ARTICLES, test[1])] == []


@pytest.mark.parametrize("words, term", SUBSTITUTES.items())
def test_texts_use_terms_of_the_field(words, term):
    uses = [
        f"{name}: …{text[max(match.start() - 40, 0) : match.end() + 40]}…: write {term}"
        for name, text in texts().items()
        for match in re.finditer(words, text, re.IGNORECASE)
    ]
    assert uses == []
