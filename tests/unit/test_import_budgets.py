"""Import budgets: what an entry loads is reported with the chain of its importers."""

import pytest

from tools.import_budgets import Budget, violations


@pytest.mark.parametrize(
    ("entry", "chain"),
    [
        ("toy.light", None),
        ("toy.heavy", "toy.heavy:2 > toy.client:1 > wave"),
        ("toy.light:load", "toy.light:6 > toy.client:1 > wave"),
    ],
)
def test_violations_name_importers_of_forbidden_module(tmp_path, monkeypatch, entry, chain):
    (tmp_path / "toy").mkdir()
    for name, text in {
        "__init__": "",
        "light": "try:\n    import not_installed\nexcept ImportError:\n    pass\n\ndef load(): import toy.client\n",
        "heavy": "import json\nfrom toy import client\n",
        "client": "from wave import open\n",
    }.items():
        (tmp_path / "toy" / f"{name}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    reported = list(violations([Budget(entry, ("not_installed", "wave"))]))

    expected = chain and f"{entry} loads wave: {chain}. Import it in the functions that use it"
    assert [text.partition(", and")[0] for text in reported] == ([expected] if expected else [])
