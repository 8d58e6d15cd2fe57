"""Kinds of schedules, by the name that `make simulate KIND=…` selects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.simulation.audited_schedule import AuditedSchedule
from tests.simulation.command_schedule import CommandSchedule
from tests.simulation.deployment.schedule import DeploymentSchedule
from tests.simulation.derivation_schedule import DerivationSchedule
from tests.simulation.group_schedule import GroupSchedule
from tests.simulation.interrupted_schedule import InterruptedSchedule
from tests.simulation.keyed_schedule import KeyedSchedule
from tests.simulation.message_schedule import MessageSchedule
from tests.simulation.paused_stream_schedule import PausedStreamSchedule
from tests.simulation.position_schedule import PositionSchedule
from tests.simulation.reader_schedule import ReaderSchedule
from tests.simulation.roll_over_schedule import RollOverSchedule
from tests.simulation.schedule import Schedule
from tests.simulation.stream_schedule import StreamSchedule

KINDS: Mapping[str, Any] = {
    "ingestion": Schedule,
    "readers": ReaderSchedule,
    "messages": MessageSchedule,
    "derivation": DerivationSchedule,
    "commands": CommandSchedule,
    "positions": PositionSchedule,
    "interruptions": InterruptedSchedule,
    "keys": KeyedSchedule,
    "audits": AuditedSchedule,
    "roll-overs": RollOverSchedule,
    "streams": StreamSchedule,
    "pauses": PausedStreamSchedule,
    "groups": GroupSchedule,
    "deployment": DeploymentSchedule,
}
"""Classes with `world` and `run`, which raises Violation."""
