"""The users' functions that compute derived topics, and the errors of their code."""

import importlib
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

from lakehouse.config.base import Fault
from lakehouse.config.model import Config, Topic
from lakehouse.config.sources import Derived
from lakehouse.core.errors import ConfigError, LakehouseError, TransformFailed
from lakehouse.core.text import did_you_mean
from lakehouse.pipeline.engine_values import JobFailed, Transform

NAMING = (NameError, AttributeError, ImportError, TypeError, NotImplementedError)
"""Errors whose texts have names of the code and no values of rows. Other texts are not shown."""
CODE = (*NAMING, SyntaxError, LookupError, ValueError, ArithmeticError, AssertionError, RecursionError)
"""Errors of code. Other types, such as OSError, may pass."""
ANALYSIS = re.compile(
    r"UNRESOLVED_|AMBIGUOUS_|DATATYPE_MISMATCH|MISSING_|INVALID_(?!HANDLE)|PARSE_|NOT_A_|WRONG_NUM_ARGS|UNSUPPORTED_"
)
"""Beginnings of the conditions with which Spark refuses a query, before it reads any row (error-conditions.json)."""
_CALLED = re.compile(r"was called from\s+(\S+:\d+)")
_FRAME = re.compile(r'File "(.+?)", line (\d+), in (\w+)')


def transform(config: Config, topic: Topic) -> Transform:
    """Return the function that computes a derived topic, from an installed module or one beside lakehouse.yaml.

    The function raises TransformFailed, with the file and line, for an error of its code.

    Raises:
        ConfigError: It cannot be imported, or cannot be called with the rows alone.
    """
    try:
        function = _function(config, topic)
    except _Unusable as fault:
        at = f"{(topic.file or config.file).name}:{topic.line}: topics.{topic.name}.source.transform"
        raise ConfigError(f"{at}: {fault}") from fault

    @wraps(function)
    def computed(rows: Any) -> Any:
        try:
            result = function(rows)
        except LakehouseError:
            raise
        except CODE as error:
            source = config.topics.get(topic.source.upstream)
            is_sensitive = bool(topic.sensitive or (source and source.sensitive))
            text = f"raised {_described(error, is_sensitive=is_sensitive)} at {_frame(error)}"
            raise _composed(topic, text) from error
        if result is None:
            raise _composed(topic, f"returned None, and no DataFrame ({_place(function)})")
        return result

    return computed


def transform_faults(config: Config) -> list[Fault]:
    """Return the transforms that cannot be imported, or called with the rows alone."""
    faults: list[Fault] = []
    for name, topic in config.topics.items():
        if isinstance(topic.source, Derived):
            try:
                _function(config, topic)
            except _Unusable as fault:
                faults.append((("topics", name, "source", "transform"), str(fault)))
    return faults


@contextmanager
def transform_errors(config: Config, topic: Topic) -> Iterator[None]:
    """Translate failures of the engine that the code of a transform caused.

    Raises:
        TransformFailed: Spark cannot analyze the result, or a function of Python in it raised an error.
    """
    try:
        yield
    except JobFailed as error:
        text = str(error)
        if ANALYSIS.match(error.condition or ""):
            reason = text.strip().splitlines()[0].partition(" SQLSTATE")[0].rstrip(".;: ")
            # PySpark knows the line of functions such as `col`, and not of names that are texts.
            where = match[1] if (match := _CALLED.search(text)) else _place(_function(config, topic))
            raise _composed(topic, f"has no valid result (at {where}): {reason}") from error
        if "from the Python worker" in text and (frames := _FRAME.findall(text)):
            file, line, function = frames[-1]
            raise _composed(topic, f"raised an error at {file}:{line}, in {function}, for a row") from error
        raise


class _Unusable(Exception):
    """A transform cannot be imported or called; the message has the remedy."""


def _function(config: Config, topic: Topic) -> Transform:
    assert isinstance(topic.source, Derived)
    declared = topic.source.transform
    module, _, name = declared.partition(":")
    # At the end, so that a file of the project hides no installed module.
    if str(config.root) not in sys.path:
        sys.path.append(str(config.root))
    imported = _module(config, module)
    function: Any = getattr(imported, name, None)
    if function is None:
        names = [defined for defined, value in vars(imported).items() if callable(value)]
        problem = f"module '{module}' has no function '{name}'.{did_you_mean(name, names)}"
        raise _Unusable(f"{problem} Correct the name, or define the function in {imported.__file__ or module}")
    if not callable(function):
        kind = type(function).__name__
        raise _Unusable(f"'{declared}' is a value of type {kind}, not a function. Name a function")
    try:
        inspect.signature(function).bind(object())
    except TypeError as error:
        problem = f"the function at {_place(function)} cannot be called with one argument, the rows: {error}"
        raise _Unusable(f"{problem}. Let it take and return a DataFrame") from error
    except ValueError:
        pass  # a function in C may have no signature
    compute: Transform = function
    return compute


def _module(config: Config, name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except SyntaxError as error:
        reason = f"{error.filename}:{error.lineno}: not valid Python: {error.msg}"
        raise _Unusable(f"{reason}. Correct the line") from error
    except ModuleNotFoundError as error:
        if error.name and name.split(".")[: error.name.count(".") + 1] == error.name.split("."):
            names = [file.stem for file in config.root.glob("*.py")]
            hint = did_you_mean(name, names)
            if name.endswith(".py"):
                written = f"{name.removesuffix('.py')}:…"
                raise _Unusable(f"'{name}' is a file. Write {written}, the name of the module") from error
            problem = f"there is no module '{error.name}'.{hint} Create {config.root / name.replace('.', '/')}.py"
            raise _Unusable(f"{problem}, or correct `transform`") from error
        raise _Unusable(f"{_frame(error)} {error}. Install it, or correct the import") from error
    except Exception as error:
        raise _Unusable(f"{_frame(error)} {_described(error)}. Correct the module") from error


def _composed(topic: Topic, problem: str) -> TransformFailed:
    assert isinstance(topic.source, Derived)
    return TransformFailed(
        f"Transform '{topic.source.transform}' of topic '{topic.name}' {problem}",
        "Nothing was produced, and the bookmark is unchanged",
        "Correct the function, and run the command again or reload the code location",
    )


def _described(error: Exception, *, is_sensitive: bool = False) -> str:
    """Return the type of an error, and its text if that cannot quote values of rows.

    Args:
        error: The error.
        is_sensitive: Whether the rows have sensitive columns: then no text is shown, since code may raise any text.
    """
    is_shown = isinstance(error, NAMING) and not is_sensitive
    return f"{type(error).__name__}: {error}" if is_shown else type(error).__name__


def _place(function: Callable[..., Any]) -> str:
    """Return the file and line of a function."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)


def _frame(error: Exception) -> str:
    """Return file and line of the innermost code outside of installed libraries, in a traceback."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    libraries = ("<", str(Path(importlib.__file__).parent))
    outside = [one for one in frames if "site-packages" not in one.filename and not one.filename.startswith(libraries)]
    frame = (outside or frames or traceback.extract_tb(error.__traceback__))[-1]
    return f"{frame.filename}:{frame.lineno}"
