"""Checks that need no run of their asset: what a pipeline can ask for at any time, and what runs with each run."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import dagster as dg

from assets.failures import explained
from assets.step import read_once
from lakehouse.automation import with_the_asset


@dataclass(frozen=True)
class Standing:
    """One check: its name, what it says, the resources it takes, and what it does with them."""

    name: str
    description: str
    needs: frozenset[str]
    run: Callable[[dg.AssetCheckExecutionContext], dg.AssetCheckResult]
    blocking: bool = False


def standing_checks(asset: Sequence[str], checks: Sequence[Standing]) -> dg.AssetChecksDefinition:
    """The checks of one asset, in one step: a step each would cost a third of the time that definitions take to load.

    One that cannot be run does not keep the others from reporting.
    """
    key = dg.AssetKey(asset)
    specs = [
        dg.AssetCheckSpec(
            check.name,
            asset=key,
            description=check.description,
            blocking=check.blocking,
            automation_condition=with_the_asset(),
        )
        for check in checks
    ]

    @dg.multi_asset_check(
        name=f"{key.to_python_identifier()}_checks",
        specs=specs,
        can_subset=True,
        required_resource_keys=set().union(*(check.needs for check in checks)),
    )
    @read_once
    def run_checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        failures = []
        for check in checks:
            if dg.AssetCheckKey(key, check.name) not in context.selected_asset_check_keys:
                continue
            try:
                with explained():
                    yield check.run(context)
            except dg.Failure as failure:
                failures.append(failure)
        if failures:
            raise failures[0]

    return run_checks
