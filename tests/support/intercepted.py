"""An engine of which some operations are intercepted: an action happens before them, or they get other arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from lakehouse.core.offsets.batch import Counts
from lakehouse.pipeline.engine import EngineClient

Interceptor = Callable[..., Any]
"""Called in place of an operation, with the operation and its arguments."""

PARTS = ("letters", "maintenance")


@dataclass(frozen=True)
class InterceptedEngines:
    """A client of an engine, and the interceptors of its operations by name, such as `write` or `letters.mark`."""

    engines: EngineClient
    interceptors: Mapping[str, Interceptor] = field(default_factory=dict)

    def engine(self, *arguments: Any) -> Any:
        return _Intercepted(self.engines.engine(*arguments), self.interceptors)

    def with_own_session(self) -> InterceptedEngines:
        return InterceptedEngines(self.engines.with_own_session(), self.interceptors)

    def close(self) -> None:
        self.engines.close()


@dataclass(frozen=True)
class _Intercepted:
    engine: Any
    interceptors: Mapping[str, Interceptor]
    prefix: str = ""

    def __getattr__(self, name: str) -> Any:
        member, path = getattr(self.engine, name), self.prefix + name
        if name in PARTS:
            return _Intercepted(member, self.interceptors, f"{name}.")
        return partial(self.interceptors[path], member) if path in self.interceptors else member


def miscounted(write: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
    """Return the result of a write that counts a record more than it wrote."""
    written = write(*arguments, **settings)
    return replace(written, counts=written.counts + Counts(consumed=1, rows=1))


def acting_once(act: Callable[[], Any]) -> tuple[Interceptor, list[Any]]:
    """Return an interceptor that acts before the first call of an operation, and the list that gets the result."""
    done: list[Any] = []

    def intercept(operation: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
        if not done:
            done.append(None)
            done[0] = act()
        return operation(*arguments, **settings)

    return intercept, done
