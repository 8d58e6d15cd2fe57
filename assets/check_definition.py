"""Checks that run in each run of their asset or every hour, and that a pipeline can also run by themselves."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from assets.asset_factory import NOTHING_IN
from assets.automation import hourly, with_the_asset
from lakehouse.config.sensitive import hide_values
from lakehouse.config.topic import Topic
from lakehouse.core.errors import logged_reason
from lakehouse.core.tables import naming

OPTIONAL_OUT = dg.Out(dg.Nothing, is_required=False)
"""Output of a check, which is optional because a run may select only some of the checks."""


@dataclass(frozen=True)
class CheckDefinition:
    """Definition of one check.

    Attributes:
        name: The name of the check.
        description: The statement that is true if the check passes.
        needs: Keys of the required resources.
        run: Evaluates the check.
        blocking: Whether a failure blocks the assets downstream.
        by_clock: Whether the check runs every hour, because its subject changes without a run of the asset.
    """

    name: str
    description: str
    needs: frozenset[str]
    run: Callable[[dg.AssetCheckExecutionContext], dg.AssetCheckResult]
    blocking: bool = False
    by_clock: bool = False


def asset_checks(entry: Topic, system: str, checks: Sequence[CheckDefinition]) -> dg.AssetChecksDefinition:
    """Return the checks of the asset `system/<entry>`, in one step.

    One step per check would take a third of the load time of the definitions. If a check raises an error, the other
    checks still report.
    """
    key = dg.AssetKey([system, entry.name])
    specs = [
        dg.AssetCheckSpec(
            check.name,
            asset=key,
            description=check.description,
            blocking=check.blocking,
            automation_condition=hourly() if entry.continuous or check.by_clock else with_the_asset(),
        )
        for check in checks
    ]

    def run_checks(context: dg.AssetCheckExecutionContext, _: Mapping[str, Any]) -> Iterator[dg.AssetCheckResult]:
        reasons: dict[str, str] = {}
        first: Exception | None = None
        for check in checks:
            if dg.AssetCheckKey(key, check.name) not in context.selected_asset_check_keys:
                continue
            try:
                with hide_values(entry):
                    yield check.run(context)
            except Exception as error:
                failure = f"Check {check.name} of {key.to_user_string()} could not be run"
                reasons[check.name], first = logged_reason(failure, error), first or error
        if reasons:
            text = "; ".join(f"{name}: {why}" for name, why in reasons.items())
            raise dg.Failure(text, reasons, allow_retries=False) from first

    node = dg.OpDefinition(
        run_checks,
        naming.node_name("checks", *key.path),
        ins={key.to_python_identifier(): NOTHING_IN},
        outs={spec.get_python_identifier(): OPTIONAL_OUT for spec in specs},
        required_resource_keys=set().union(*(check.needs for check in checks)),
    )
    return dg.AssetChecksDefinition.create(
        node_def=node,
        keys_by_input_name={key.to_python_identifier(): key},
        check_specs_by_output_name={spec.get_python_identifier(): spec for spec in specs},
        can_subset=True,
    )
