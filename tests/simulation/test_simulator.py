"""Guarantees of the simulation itself: seeds, choices, what it replaces, and its mutations."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.simulation import simulate
from tests.simulation.choices import Choices, shrink
from tests.simulation.kinds import KINDS
from tests.simulation.mutations.patches import PATCHES, PROJECT
from tests.simulation.schedules.schedule import Schedule, run, simulation
from tests.simulation.threads import threads_in_memory
from tests.simulation.world import World


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
    # Fewer random identifiers are drawn, so those in the texts of errors are different.
    traces = [
        [re.sub(r"\bingest_[0-9a-f]+", "ingest_", line) for line in outcome.world.trace] for outcome in (plain, shared)
    ]
    assert traces[0] == traces[1]


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
