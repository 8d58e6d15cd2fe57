"""Durations of the phases of one batch."""

import time

from lakehouse.pipeline.commits.staged_commit import OnPhase, Phase


class PhaseClock:
    """Measures the phases of one batch, and reports each of them."""

    def __init__(self, on_phase: OnPhase) -> None:
        """
        Args:
            on_phase: Called when a phase begins.
        """
        self._on_phase = on_phase
        self._began: list[tuple[Phase, float]] = []

    def __call__(self, phase: Phase) -> None:
        """Record and report the beginning of a phase."""
        self._began.append((phase, time.monotonic()))
        self._on_phase(phase)

    def seconds(self) -> dict[Phase, float]:
        """Return the seconds of each phase that has ended. One that began several times counts as a whole."""
        durations: dict[Phase, float] = {}
        for (phase, began), (_, ended) in zip(self._began, self._began[1:], strict=False):
            durations[phase] = durations.get(phase, 0.0) + ended - began
        return durations
