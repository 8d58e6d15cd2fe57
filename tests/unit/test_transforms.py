"""Transforms of derived topics: what `validate` reports before they run, and what their errors say."""

import sys

import pytest

from lakehouse.config.model import Config, Topic
from lakehouse.core.errors import ConfigError, TransformFailed, is_transient
from lakehouse.pipeline.derivation.transforms import transform, transform_errors, transform_faults
from lakehouse.pipeline.engine_values import JobFailed

AT = ("topics", "totals", "source", "transform")


@pytest.fixture
def derived(tmp_path, monkeypatch):
    """Return a function that writes a module, and returns the configuration that names a function in it, and its file.

    Each module has a name of its own, because an imported module stays imported.
    """
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(code, name="compute", module="", sensitive=()):
        file = tmp_path / f"shop_{tmp_path.name}.py"
        file.write_text(code)
        entry = {"type": "derived", "from": "orders", "transform": f"{module or file.stem}:{name}"}
        topic = {"name": "totals", "line": 7, "source": entry, "sensitive": sensitive}
        topics = {"totals": Topic.model_validate(topic)}
        return Config(
            namespace="shop", topics=topics, environments={}, root=tmp_path, file=tmp_path / "lakehouse.yaml"
        ), file

    return write


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("def compute(rows)\n", "{file}:1: not valid Python: expected ':'. Correct the line"),
        ("compute = 3\n", "'{stem}:compute' is a value of type int, not a function. Name a function"),
        (
            "\ndef compute(rows, other):\n    return rows\n",
            "the function at {file}:2 cannot be called with one argument, the rows: missing a required argument: "
            "'other'. Let it take and return a DataFrame",
        ),
        (
            "def computed(rows):\n    return rows\n",
            "module '{stem}' has no function 'compute'. Did you mean 'computed'? Correct the name, or define the "
            "function in {file}",
        ),
        ("import pandsa\n", "{file}:1 No module named 'pandsa'. Install it, or correct the import"),
        ("X = 1\nX.y\n", "{file}:2 AttributeError: 'int' object has no attribute 'y'. Correct the module"),
        ("\nX = {}['secret']\n", "{file}:2 KeyError. Correct the module"),
    ],
)
def test_transform_that_cannot_run_is_a_fault_with_its_line(derived, code, fault):
    config, file = derived(code)
    expected = fault.format(file=file, stem=file.stem)
    assert transform_faults(config) == [(AT, expected)]
    with pytest.raises(ConfigError) as raised:
        transform(config, config.topics["totals"])
    assert str(raised.value) == f"lakehouse.yaml:7: topics.totals.source.transform: {expected}"


def test_missing_module_suggests_one_beside_the_file(derived):
    config, file = derived("def compute(rows): return rows\n", module=f"{'shpo'}_{'x'}")
    [(_, problem)] = transform_faults(config)
    assert problem.startswith("there is no module 'shpo_x'.")
    assert problem.endswith(f" Create {file.parent}/shpo_x.py, or correct `transform`")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("rows.nope", "raised AttributeError: 'list' object has no attribute 'nope' at {file}:2"),
        ("nope", "raised NameError: name 'nope' is not defined at {file}:2"),
        ("len(1)", "raised TypeError: object of type 'int' has no len() at {file}:2"),
        ("{}[rows[0]]", "raised KeyError at {file}:2"),
        ("int(rows[0])", "raised ValueError at {file}:2"),
        ("None", "returned None, and no DataFrame ({file}:1)"),
    ],
)
def test_error_of_a_transform_has_its_line_no_value_and_is_not_retried(derived, body, problem):
    config, file = derived(f"def compute(rows):\n    return {body}\n")
    with pytest.raises(TransformFailed) as raised:
        transform(config, config.topics["totals"])(["card 4111"])
    error = raised.value
    assert error.problem == f"Transform '{file.stem}:compute' of topic 'totals' {problem.format(file=file)}"
    assert not is_transient(error) and "4111" not in str(error)


def test_error_of_a_sensitive_topic_has_no_text(derived):
    config, file = derived("def compute(rows):\n    raise TypeError(rows[0])\n", sensitive=["card"])
    with pytest.raises(TransformFailed, match=f"raised TypeError at {file}:2"):
        transform(config, config.topics["totals"])(["card 4111"])


def test_error_of_rows_from_a_sensitive_source_has_no_text(derived):
    config, file = derived("def compute(rows):\n    raise TypeError(rows[0])\n")
    source = Topic.model_validate({"name": "orders", "sensitive": ["card"]})
    config = config.model_copy(update={"topics": {**config.topics, "orders": source}})
    with pytest.raises(TransformFailed, match=f"raised TypeError at {file}:2"):
        transform(config, config.topics["totals"])(["card 4111"])


def test_lost_connection_in_a_transform_is_retried(derived):
    config, _ = derived("def compute(rows):\n    raise ConnectionError('reset')\n")
    with pytest.raises(ConnectionError) as raised:
        transform(config, config.topics["totals"])([])
    assert is_transient(raised.value)


UNRESOLVED = """[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `nope` cannot be resolved. Did you mean `id`? \
SQLSTATE: 42703
== DataFrame ==
"col" was called from
/srv/shop.py:12
"""
RAISED = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/srv/shop.py", line 9, in cents
ValueError: card 4111
"""


@pytest.mark.parametrize(
    ("text", "condition", "problem"),
    [
        (
            UNRESOLVED,
            "UNRESOLVED_COLUMN.WITH_SUGGESTION",
            "has no valid result (at /srv/shop.py:12): [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `nope` "
            "cannot be resolved. Did you mean `id`?",
        ),
        (
            UNRESOLVED.partition("==")[0],
            "UNRESOLVED_COLUMN.WITH_SUGGESTION",
            "has no valid result (at {file}:1): [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `nope` cannot "
            "be resolved. Did you mean `id`?",
        ),
        (RAISED, None, "raised an error at /srv/shop.py:9, in cents, for a row"),
    ],
)
def test_error_of_spark_that_a_transform_caused_is_not_retried(derived, text, condition, problem):
    config, file = derived("def compute(rows): return rows\n")
    with pytest.raises(TransformFailed) as raised, transform_errors(config, config.topics["totals"]):
        raise JobFailed(text, condition)
    assert (
        raised.value.problem
        == f"Transform '{file.stem}:compute' of topic 'totals' {problem.replace('{file}', str(file))}"
    )


@pytest.mark.parametrize("condition", ["INVALID_HANDLE.SESSION_CLOSED", "DIVIDE_BY_ZERO", None])
def test_other_error_of_spark_is_retried(derived, condition):
    config, _ = derived("")
    with pytest.raises(JobFailed), transform_errors(config, config.topics["totals"]):
        raise JobFailed("lost executor", condition)
