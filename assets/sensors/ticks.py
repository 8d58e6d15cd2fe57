"""Whether the sensors and schedules of this code location work, as their last ticks say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import dagster as dg
from dagster._utils.error import SerializableErrorInfo

from lakehouse.core.errors import LakehouseError

FAILURES = {"SENSOR": 2, "SCHEDULE": 1}
"""So many failed ticks in a row are a failure: a sensor tries again in a minute, a schedule perhaps in a day."""

LOOK_BACK = 10
"""Ticks of each that are looked at. One that ended neither well nor badly is in progress, or its daemon died in it."""


@dataclass(frozen=True)
class Watched:
    """A sensor or a schedule that is switched on.

    `interval` is how far apart a sensor's ticks are, in seconds; `succeeded` is when the last one that did not fail
    ended, in seconds since the epoch, None where none of the newest is; `failure` says why it fails, if it does.
    """

    name: str
    kind: str
    location: str
    interval: float
    succeeded: float | None
    failure: str

    @property
    def path(self) -> str:
        """Its page in Dagster's UI."""
        return f"/locations/{self.location}/{self.kind.lower()}s/{self.name}"


def watched(context: dg.SensorEvaluationContext) -> Iterator[Watched]:
    """The sensors and schedules of this code location that are switched on and ticked at least once.

    The sensor of automation conditions is one of them: the asset daemon keeps its ticks in the same place.
    """
    for state in context.instance.all_instigator_state():
        location = state.origin.repository_origin.code_location_origin.location_name
        if not state.is_running or not _is_ours(context, location, state.name):
            continue
        newest = context.instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=LOOK_BACK)
        ended = [tick for tick in newest if tick.status.value != "STARTED"]
        if not ended:
            continue
        kind = state.instigator_type.value
        needed = FAILURES.get(kind, 2)
        fails = len(ended) >= needed and all(tick.is_failure for tick in ended[:needed])
        yield Watched(
            name=state.name,
            kind=kind.capitalize(),
            location=location,
            interval=getattr(state.instigator_data, "min_interval", None) or 0,
            succeeded=next((tick.end_timestamp or tick.timestamp for tick in ended if not tick.is_failure), None),
            failure=_reason(ended[0].error) if fails else "",
        )


def _is_ours(context: dg.SensorEvaluationContext, location: str, name: str) -> bool:
    """Whether it is of this code location: other projects may share the instance."""
    origin, repository = context.code_location_origin, context.repository_def
    if origin is not None and origin.location_name != location:
        return False
    return repository is None or repository.has_sensor_def(name) or repository.has_schedule_def(name)


def _reason(error: SerializableErrorInfo | None) -> str:
    """The sentence of this project's error, wherever it is among the causes; of others the type, because their texts
    may quote rows."""
    kinds = {f"{kind.__module__}.{kind.__qualname__}: " for kind in _kinds(LakehouseError)}
    name = "an error"
    while error is not None:
        text = error.message.strip()
        for kind in kinds:
            if text.startswith(kind):
                return text.removeprefix(kind)
        name, error = error.cls_name or name, error.cause
    return f"{name}, see its page in Dagster"


def _kinds(kind: type[Exception]) -> Iterator[type[Exception]]:
    yield kind
    for further in kind.__subclasses__():
        yield from _kinds(further)
