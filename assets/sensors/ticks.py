"""Health of the sensors and schedules of this code location, derived from their last ticks."""

from collections.abc import Iterator
from dataclasses import dataclass

import dagster as dg
from dagster._utils.error import SerializableErrorInfo

from lakehouse.core.errors import LakehouseError

FAILURES = {"SENSOR": 2, "SCHEDULE": 1}
"""Consecutive failed ticks that count as a failure: a sensor retries in a minute, a schedule perhaps in a day."""

LOOK_BACK = 10
"""Number of newest ticks to inspect. An unfinished tick is in progress, or its daemon died."""


@dataclass(frozen=True)
class Watched:
    """A sensor or a schedule that is switched on.

    Attributes:
        name: Its name.
        kind: `Sensor` or `Schedule`.
        location: Its code location.
        interval: Seconds between two ticks of a sensor.
        succeeded: End of the last tick that did not fail, in seconds since the epoch; None without one in LOOK_BACK.
        failure: Reason of the failure, or empty.
    """

    name: str
    kind: str
    location: str
    interval: float
    succeeded: float | None
    failure: str

    @property
    def path(self) -> str:
        """Path of its page in Dagster's UI."""
        return f"/locations/{self.location}/{self.kind.lower()}s/{self.name}"


def watched(context: dg.SensorEvaluationContext) -> Iterator[Watched]:
    """Yield the sensors and schedules of this code location that are switched on and have ticked.

    They include the sensor of automation conditions, whose ticks the asset daemon stores in the same place.
    """
    for state in context.instance.all_instigator_state():
        location = state.origin.repository_origin.code_location_origin.location_name
        if not state.is_running or not _is_of_location(context, location, state.name):
            continue
        newest = context.instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=LOOK_BACK)
        finished = [tick for tick in newest if tick.status.value != "STARTED"]
        if not finished:
            continue
        kind = state.instigator_type.value
        limit = FAILURES.get(kind, 2)
        is_failing = len(finished) >= limit and all(tick.is_failure for tick in finished[:limit])
        yield Watched(
            name=state.name,
            kind=kind.capitalize(),
            location=location,
            interval=getattr(state.instigator_data, "min_interval", None) or 0,
            succeeded=next((tick.end_timestamp or tick.timestamp for tick in finished if not tick.is_failure), None),
            failure=_reason(finished[0].error) if is_failing else "",
        )


def _is_of_location(context: dg.SensorEvaluationContext, location: str, name: str) -> bool:
    """Return whether a sensor or schedule is in this code location: other projects may share the instance."""
    origin, repository = context.code_location_origin, context.repository_def
    if origin is not None and origin.location_name != location:
        return False
    return repository is None or repository.has_sensor_def(name) or repository.has_schedule_def(name)


def _reason(error: SerializableErrorInfo | None) -> str:
    """Return the message of this project's error among the causes, or else the type of the innermost error.

    Texts of other errors are withheld, because they may quote rows.
    """
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
    for subclass in kind.__subclasses__():
        yield from _kinds(subclass)
