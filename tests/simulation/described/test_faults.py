"""Programs whose catalog or storage stops to answer, at any of their calls."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakehouse.core.errors import LakehouseError
from tests.simulation import engine
from tests.simulation.choices import Choices
from tests.simulation.described.steps import Derivation, Steps, record
from tests.simulation.schedules.schedule import simulation
from tests.simulation.systems import memory_files
from tests.simulation.systems.memory_files import empty_store
from tests.simulation.systems.registry import LATE, OTHER
from tests.simulation.world import replaced, simulated_time


def is_of_spark(file: str) -> bool:
    """Return whether a module of the simulation stands for Spark."""
    return Path(file).parent == Path(engine.__file__).parent


@contextmanager
def failing_at(schedule: Steps, number: int) -> Iterator[list[str]]:
    """Let a request of programs to the catalog or its files fail, and all later ones of its kind.

    Yields:
        The kinds of all requests so far.
    """
    world, requests = schedule.world, list[str]()
    call, read = world.call, memory_files.RecordReader.__enter__

    def request(operation: str) -> None:
        requests.append(operation)
        if [operation] == requests[number : number + 1]:
            raise OSError("the request was lost")

    def calling(operation: str, effect: Callable[[], object], error: Callable[[str], Exception]) -> object:
        if world.current and operation.startswith("catalog."):
            request(operation)
        return call(operation, effect, error)

    def reading(reader: memory_files.RecordReader) -> Iterator[object]:
        # Spark, which reads manifests too, has errors of its own.
        if not any(is_of_spark(frame.f_code.co_filename) for frame, _ in traceback.walk_stack(None)):
            request("read manifest")
        return read(reader)

    with replaced({world: {"call": calling}, memory_files.RecordReader: {"__enter__": reading}}):
        yield requests


def require_project_error(error: BaseException | None) -> None:
    """Require that a program had no error, or one of the project."""
    if error is not None and not isinstance(error, LakehouseError):
        raise error


def ingested(schedule: Steps) -> None:
    """Ingest records, and produce more of them, of a schema that the first ones lacked."""
    schedule.kafka.produce(0, [record(1), record(2, schema_id=LATE), record(3, is_garbage=True)])
    schedule.complete("ingest")
    schedule.kafka.produce(0, [record(1), record(4, schema_id=OTHER)])
    schedule.register()


@pytest.mark.parametrize(
    "program", ["ingest", "redrive", "replay", "replay branch", "dry run", "maintain", "compact", "resume"]
)
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_program_whose_catalog_fails_at_any_call_names_it(program, mode):
    for number in itertools.count():
        schedule = Steps(Choices(None), modes=(mode,))
        with simulation(), empty_store(), simulated_time(schedule.world):
            ingested(schedule)
            with failing_at(schedule, number) as requests:
                require_project_error(schedule.finish(program))
            schedule.complete("ingest", "redrive")
            schedule.oracle.judge_end()
            schedule.oracle.raise_violations()
        if number >= len(requests):
            break
    assert number


@pytest.mark.parametrize("program", ["ingest", "dry run", "resume"])
def test_first_program_whose_catalog_fails_at_any_call_names_it(program):
    for number in itertools.count():
        schedule = Steps(Choices(None))
        with simulation(), empty_store(), simulated_time(schedule.world):
            schedule.kafka.produce(0, [record(1), record(3, is_garbage=True)])
            with failing_at(schedule, number) as requests:
                require_project_error(schedule.finish(program))
        if number >= len(requests):
            break
    assert number


@pytest.mark.parametrize("is_grouped", [False, True], ids=["rows", "groups"])
def test_derive_whose_catalog_fails_at_any_call_names_it(is_grouped):
    for number in itertools.count():
        schedule = Derivation(is_grouped=is_grouped)
        with schedule.begun():
            schedule.ingest(record(1), record(2))
            schedule.kafka.produce(0, [record(1), record(3)])
            schedule.complete("ingest")
            with failing_at(schedule, number) as requests:
                require_project_error(schedule.finish("derive"))
            schedule.complete("derive")
        if number >= len(requests):
            break
    assert number
