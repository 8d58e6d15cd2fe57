"""Checks that need no run of their asset: what a pipeline can ask for at any time, and what runs with each run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from assets.automation import hourly, with_the_asset
from assets.failures import explained
from assets.step import NOTHING_IN
from lakehouse.config.topic import Topic

OPTIONAL_OUT = dg.Out(dg.Nothing, is_required=False)
"""A run may ask for some of the checks."""


@dataclass(frozen=True)
class Standing:
    """One check: its name, what it says, the resources it takes, and what it does with them."""

    name: str
    description: str
    needs: frozenset[str]
    run: Callable[[dg.AssetCheckExecutionContext], dg.AssetCheckResult]
    blocking: bool = False


def standing_checks(entry: Topic, system: str, checks: Sequence[Standing]) -> dg.AssetChecksDefinition:
    """The checks of the asset `system/<entry>`, in one step: a step each would cost a third of the time that
    definitions take to load.

    One that cannot be run does not keep the others from reporting.
    """
    key = dg.AssetKey([system, entry.name])
    specs = [
        dg.AssetCheckSpec(
            check.name,
            asset=key,
            description=check.description,
            blocking=check.blocking,
            automation_condition=hourly() if entry.continuous else with_the_asset(),
        )
        for check in checks
    ]

    def run_checks(context: dg.AssetCheckExecutionContext, _: Mapping[str, Any]) -> Iterator[dg.AssetCheckResult]:
        failures: list[Exception] = []
        for check in checks:
            if dg.AssetCheckKey(key, check.name) not in context.selected_asset_check_keys:
                continue
            try:
                with explained(entry):
                    yield check.run(context)
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]

    node = dg.OpDefinition(
        run_checks,
        f"{key.to_python_identifier()}_checks",
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
