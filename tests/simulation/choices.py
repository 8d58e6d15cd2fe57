"""Choices of one schedule: drawn from a seed, recorded, and replayed from a record to shrink a failure.

Every choice is a number, and 0 is always the simplest one: no fault, no switch to another process, the first action.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """A source of choices.

    Args:
        seed: The seed; None if `recorded` decides everything.
        recorded: Numbers to return instead of random ones; after the last one, all numbers are 0.
    """

    def __init__(self, seed: int | None, recorded: Sequence[int] = ()):
        self._bits = random.Random(seed).getrandbits if seed is not None else None
        self._recorded = recorded
        self.drawn: list[int] = []

    def below(self, count: int) -> int:
        """Return a number from 0 (inclusive) to `count` (exclusive)."""
        if self._bits:
            # As `randrange` does, which takes longer.
            bits = count.bit_length()
            while (number := self._bits(bits)) >= count:
                pass
        else:
            position = len(self.drawn)
            number = min(self._recorded[position], count - 1) if position < len(self._recorded) else 0
        self.drawn.append(number)
        return number

    def happens(self, percent: int) -> bool:
        """Return whether an event of this probability happens."""
        return self.below(100) >= 100 - percent

    def of(self, options: Sequence[T]) -> T:
        """Return one of the options."""
        return options[self.below(len(options))]

    def without_some(self, options: Sequence[T]) -> tuple[T, ...]:
        """Return the options without a random half of those that occur once; all if none would remain.

        A schedule with few kinds of events has many of each, and so their combinations (Groce et al., Swarm Testing,
        2012).
        """
        kept = tuple(option for option in options if options.count(option) > 1 or not self.below(2))
        return kept or tuple(options)


def shrink(recorded: Sequence[int], fails: Callable[[Sequence[int]], bool], attempts: int = 400) -> list[int]:
    """Return a shorter and simpler record with which a schedule still fails.

    Args:
        recorded: The record of a failure.
        fails: Runs a schedule, and returns whether it fails in the same way.
        attempts: The maximum number of schedules to run.
    """
    best, width = list(recorded), max(len(recorded) // 2, 1)
    while width and attempts > 0:
        position = 0
        while position < len(best) and attempts > 0:
            part = best[position : position + width]
            without = best[:position] + best[position + width :]
            zeroed = best[:position] + [0] * len(part) + best[position + width :]
            for simpler in (without, zeroed) if any(part) else (without,):
                attempts -= 1
                if fails(simpler):
                    best = simpler
                    break
            else:
                position += width
            if simpler is zeroed and best is zeroed:
                position += width
        width //= 2
    return best
