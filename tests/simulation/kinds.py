"""Kinds of schedules, by the name that `make simulate KIND=…` selects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.simulation.deployment.schedule import DeploymentSchedule
from tests.simulation.schedules.audits import AuditedSchedule
from tests.simulation.schedules.commands import CommandSchedule, PositionSchedule
from tests.simulation.schedules.compiled import CompiledSchedule
from tests.simulation.schedules.derivation import DerivationSchedule
from tests.simulation.schedules.derived_edits import EditedDerivationSchedule
from tests.simulation.schedules.edits import EditedSchedule
from tests.simulation.schedules.groups import GroupSchedule
from tests.simulation.schedules.interruptions import InterruptedSchedule, KeyedSchedule
from tests.simulation.schedules.messages import MessageSchedule
from tests.simulation.schedules.readers import ReaderSchedule
from tests.simulation.schedules.rest import RestReaderSchedule, RestSchedule
from tests.simulation.schedules.roll_overs import RollOverSchedule
from tests.simulation.schedules.schedule import Schedule
from tests.simulation.schedules.streams import PausedStreamSchedule, StreamSchedule

KINDS: Mapping[str, Any] = {
    "ingestion": Schedule,
    "readers": ReaderSchedule,
    "messages": MessageSchedule,
    "derivation": DerivationSchedule,
    "commands": CommandSchedule,
    "positions": PositionSchedule,
    "interruptions": InterruptedSchedule,
    "keys": KeyedSchedule,
    "compiled": CompiledSchedule,
    "audits": AuditedSchedule,
    "rest": RestSchedule,
    "rest-readers": RestReaderSchedule,
    "edits": EditedSchedule,
    "derived-edits": EditedDerivationSchedule,
    "roll-overs": RollOverSchedule,
    "streams": StreamSchedule,
    "pauses": PausedStreamSchedule,
    "groups": GroupSchedule,
    "deployment": DeploymentSchedule,
}
"""Classes with `world` and `run`, which raises Violation."""
