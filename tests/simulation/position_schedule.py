"""Schedules of commands in which an operator lets derivations skip records that the table does not have yet."""

from __future__ import annotations

from tests.simulation.command_schedule import CommandSchedule


class PositionSchedule(CommandSchedule):
    """A schedule of commands, and of positions at the end of the log."""

    def set_bookmark(self) -> None:
        """Skip all rows of the table, or also the records that it does not have yet."""
        if self.position != "latest" or not self.choices.below(3):
            super().set_bookmark()
            return
        self.position = ",".join(f"{p}:{part.end}" for p, part in self.kafka.log.items()) or "latest"
        try:
            super().set_bookmark()
        finally:
            self.position = "latest"
