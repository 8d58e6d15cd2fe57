"""Schedules of failed seeds and of a fixed budget of seeds (README.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.choices import Choices
from tests.simulation.kinds import KINDS
from tests.simulation.schedules.schedule import run, simulation

HERE = Path(__file__).parent
LINES = [line.split() for line in (HERE / "seeds.txt").read_text().splitlines() if line[:1] != "#"]
FAILED = [(kind, int(seed)) for kind, seed, *_ in LINES]
BUDGET = [(kind, seed) for kind in KINDS for seed in range(1, 6)]


@pytest.mark.parametrize(("kind", "seed"), [*FAILED, *BUDGET])
def test_schedule_of_seed_keeps_all_promises(kind, seed):
    with simulation():
        outcome = run(Choices(seed), KINDS[kind])
    assert not outcome.violation, "\n".join(outcome.world.trace)
