"""Guarantees of the simulation itself: seeds, choices, what it replaces, and its mutations."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys

import pytest

from resources.kafka import stream_group
from tests.simulation import simulate
from tests.simulation.choices import Choices, shrink
from tests.simulation.kinds import KINDS
from tests.simulation.mutations.patches import PATCHES, PROJECT
from tests.simulation.schedules.schedule import Schedule, run, simulation
from tests.simulation.threads import threads_in_memory
from tests.simulation.world import World, simulated_time


def test_same_seed_in_another_process_has_the_same_trace():
    command = [sys.executable, "-m", "tests.simulation.simulate", "--trace", "5", "ingestion"]
    # The hash of this process's texts is another one.
    environment = os.environ | {"PYTHONHASHSEED": "1"}
    printed = subprocess.run(command, capture_output=True, check=True, env=environment, text=True).stdout
    with simulation():
        trace = run(Choices(5), KINDS["ingestion"]).world.trace
    assert printed.splitlines() == trace
    assert len(trace) > 20


@pytest.mark.parametrize("seed", (8, 9))
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_trace_without_sharing_results_is_the_same(kind, seed):
    with simulation():
        shared = run(Choices(seed), KINDS[kind])
    plain = run(Choices(seed), KINDS[kind])
    assert plain.world.trace == shared.world.trace


def test_recorded_choices_replay_the_schedule():
    with simulation():
        outcome = run(Choices(6))
        again = run(Choices(None, outcome.drawn))
    assert again.world.trace == outcome.world.trace


def test_step_of_a_program_with_a_mistake_raises_it():
    world = World(Choices(None))
    process = world.start("mistaken", lambda: world.no_such_method())
    with pytest.raises(AttributeError, match="no_such_method"):
        world.step(process)


def test_endless_schedule_breaks_a_promise(monkeypatch):
    class Endless(Schedule):
        def run(self):
            while True:
                pass

    monkeypatch.setattr(simulate, "KINDS", {"endless": Endless})
    monkeypatch.setattr(simulate, "MAX_SECONDS", 0.1)
    _, result = simulate.run_block(("endless", [1]))
    assert result.violations == {1: "the schedule does not end within 0.1 s of CPU time"}


def test_shrinking_keeps_only_the_choices_that_matter():
    recorded = [3, 0, 7, 7, 1, 9, 4]
    assert shrink(recorded, lambda drawn: 9 in drawn) == [9]


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_mutation_patch_applies_to_the_project(patch):
    subprocess.run(["git", "apply", "--check", str(patch)], cwd=PROJECT, check=True)


def test_streams_replace_only_threads_and_connections():
    replacements = threads_in_memory(World(Choices(None)), lambda event: None)
    assert {module.__name__: set(names) for module, names in replacements.items()} == {
        "lakehouse.streaming.stream": {"threading", "Queue"},
        "lakehouse.streaming.publishers": {"threading"},
        "lakehouse.streaming.scheduler": {"FILES_PER_COMPACTION"},
    }


def test_simulation_runs_the_functions_of_the_project():
    from lakehouse import readers
    from lakehouse.pipeline import bookmarks, ingestion, maintenance, replay
    from lakehouse.pipeline.batches import offsets
    from lakehouse.pipeline.commits import audit, staged_commit
    from lakehouse.pipeline.dead_letters import dead_letter_topic, letters
    from lakehouse.pipeline.derivation import (
        derivation,
        derived_topic,
        groups,
        late_rows,
        positions,
        single_rows,
        source_table,
    )
    from lakehouse.pipeline.ledger import reconciliation
    from lakehouse.readers import freshness, glue_reader, reader, reader_lag, rest_reader, snowflake_reader
    from lakehouse.streaming import publishers, scheduler, worker
    from resources.iceberg import registrations
    from resources.iceberg import snapshots as resource_snapshots
    from resources.kafka import bookmark_topic, transactions

    modules = (
        ingestion,
        letters,
        maintenance,
        offsets,
        replay,
        staged_commit,
        audit,
        reconciliation,
        dead_letter_topic,
    )
    modules += (readers, freshness, glue_reader, reader, reader_lag, rest_reader, snowflake_reader)
    modules += (derivation, derived_topic, groups, late_rows, positions, single_rows, source_table)
    modules += (bookmarks, bookmark_topic, transactions)
    modules += (registrations, resource_snapshots, publishers, scheduler, worker, stream_group)
    before = {owner: dict(vars(owner)) for module in modules for owner in owners(module)}
    with simulation(), simulated_time(World(Choices(3))):
        for module in modules:
            # Only the clock and the pool, which modules import by these names.
            assert replaced_in(module, before) <= {"datetime", "ThreadPoolExecutor"}


def test_comparison_finds_a_method_that_is_replaced(monkeypatch):
    before = {owner: dict(vars(owner)) for owner in owners(stream_group)}
    assert replaced_in(stream_group, before) == set()
    for name in ("serves", "another"):
        monkeypatch.setattr(stream_group.StreamGroup, name, lambda *arguments: True, raising=False)
    assert replaced_in(stream_group, before) == {"StreamGroup.serves", "StreamGroup.another"}


def test_comparison_finds_a_method_that_was_replaced_before(monkeypatch):
    monkeypatch.setattr(stream_group.StreamGroup, "serves", lambda *arguments: True)
    before = {owner: dict(vars(owner)) for owner in owners(stream_group)}
    assert replaced_in(stream_group, before) == {"StreamGroup.serves"}


def owners(module):
    """Return a module, and the classes that it defines, except protocols, whose constructors `typing` replaces."""
    defined = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
    return [module, *(of for of in defined if inspect.isclass(of) and not getattr(of, "_is_protocol", False))]


def replaced_in(module, before):
    """Return the names of a module and of its classes that have changed, or whose code is of another file."""
    replaced = set()
    for owner in owners(module):
        known = before.get(owner, {})
        prefix = "" if owner is module else f"{owner.__name__}."
        for name, value in vars(owner).items():
            function = inspect.unwrap(getattr(value, "fget", getattr(value, "__func__", value)))
            is_own = getattr(function, "__module__", "") == module.__name__ or owner is not module
            code = getattr(function, "__code__", None) if is_own else None
            # The methods that `dataclass` generates have no file.
            is_elsewhere = code is not None and code.co_filename not in ("<string>", module.__file__)
            if value is not known.get(name) or is_elsewhere:
                replaced.add(f"{prefix}{name}")
        replaced |= {f"{prefix}{name}" for name in known.keys() - vars(owner).keys()}
    return replaced
