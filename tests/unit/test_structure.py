"""`make lint`: lengths of modules, imports and suppressed type errors."""

import subprocess

import pytest

from tools.structure import violations


@pytest.mark.parametrize(
    ("files", "violation"),
    [
        ({"tests/test_long.py": "\n" * 601}, "test_long.py has 601 lines"),
        ({"spark/a.py": "x = y  # type: ignore[arg-type]\n"}, "spark/a.py:1 suppresses"),
        ({"spark/a.py": "x = cast(Any, y)\n"}, "spark/a.py:1 casts to Any"),
        ({"spark/a.py": "x = y  # type: ignore[arg-type]  # a reason\n" * 21}, "21 type errors are suppressed"),
        ({"lakehouse/pipeline/a.py": "def f():\n    import pyspark\n"}, "a.py:2 imports pyspark in a function"),
        (
            {"resources/a.py": "def f():\n    if x:\n        from json import loads\n"},
            "a.py:3 imports json in a function",
        ),
        (
            {"spark/a.py": "from spark import b\n", "spark/b.py": "if TYPE_CHECKING:\n    from spark.a import A\n"},
            "spark.a → spark.b → spark.a form a cycle",
        ),
        (
            {"resources/a.py": "import resources.b\n", "resources/b.py": "def f():\n    from resources.a import x\n"},
            "resources.a → resources.b → resources.a form a cycle",
        ),
        (
            {"spark/c/__init__.py": "from spark.c.a import A\n", "spark/c/a.py": "from . import registered\n"},
            "spark.c → spark.c.a → spark.c form a cycle",
        ),
        (
            {
                "spark/c/__init__.py": "from spark.c.a import A\n",
                "spark/c/a.py": "from . import b\n",
                "spark/c/b.py": "",
            },
            None,
        ),
        ({"resources/a.py": "def f():\n    from boto3.session import Session\n"}, None),
        ({"assets/__init__.py": "", "spark/__init__.py": "", "spark/a.py": "\n" * 600}, None),
    ],
)
def test_violations_are_reported_by_file(tmp_path, files, violation):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for arguments in (["init", "--quiet"], ["add", "."]):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)

    reported = list(violations(tmp_path))

    assert len(reported) == (violation is not None)
    assert violation is None or violation in reported[0]
