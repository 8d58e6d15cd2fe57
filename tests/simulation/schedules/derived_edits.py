"""Schedules in which operators edit settings in lakehouse.yaml that decide what derived messages mean."""

from __future__ import annotations

from collections.abc import Callable

from lakehouse.config.sources import Derived
from lakehouse.core.errors import IncompatibleSettings
from tests.simulation.engine.derived_rows import another, parsed, transform
from tests.simulation.schedules.derivation import TARGET, DerivationSchedule

TRANSFORMS = {one.__name__: f"{one.__module__}:{one.__name__}" for one in (transform, another)}


class EditedDerivationSchedule(DerivationSchedule):
    """A schedule in which programs derive with another transform than that of the messages.

    The derived topic is never deleted: its next messages would decide the transform.
    """

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions of derivation that leave the topic and its bookmark, and edits."""
        kept = (name for name in super().actions if name not in ("delete derived", "bookmark"))
        return (*kept, *("edit", "edit", "derive"))

    def events(self) -> dict[str, Callable[[], object]]:
        """Return the events of derivation, and what operators do to lakehouse.yaml."""
        return super().events() | {"edit": self.edit}

    def transforms(self) -> set[str]:
        """Return the names of the transforms that made the messages."""
        is_created = TARGET in self.kafka.topics
        return {parsed(m.value)[0] for m in self.kafka.committed(TARGET, 0)} if is_created else set()

    def edit(self) -> None:
        """Declare the other transform; programs that run keep theirs."""
        assert isinstance(self.derived.source, Derived)
        declared = self.derived.source.transform
        [other] = (name for name, path in TRANSFORMS.items() if path != declared)
        self.declare(other)

    def declare(self, name: str) -> None:
        """Declare a transform."""
        source = self.derived.source.model_copy(update={"transform": TRANSFORMS[name]})
        self.derived = self.derived.model_copy(update={"source": source})
        self.world.record(f"operator: transform {name}")

    def set_bookmark(self) -> None:
        """Set a position with the transform of the messages, since the command would let them stay beside others."""
        for name in self.transforms():
            self.declare(name)
        super().set_bookmark()

    def judge_messages(self) -> None:
        """Judge also that all messages were made by one transform."""
        super().judge_messages()
        if len(names := self.transforms()) > 1:
            self.oracle.violations.append(f"messages of one topic were made by {sorted(names)}")

    def finish(self, name: str) -> BaseException | None:
        """Run a program to its end; restore the transform if the derivation was refused because of it."""
        error = super().finish(name)
        if isinstance(error, IncompatibleSettings):
            self.edit()
            return super().finish(name)
        return error
