"""Factories for the assets and checks of an entry, and for the ops that run them, with their failures and retries."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import dagster as dg

from assets.alert_causes import SYSTEM
from assets.entry import group, hourly, hourly_until_passed, partitions, with_the_asset
from assets.run_log import failures_logged
from lakehouse.config.model import Topic
from lakehouse.config.sensitive import hide_values
from lakehouse.core.errors import LakehouseError, failing_system, is_transient, logged_reason, translate
from lakehouse.core.tables import naming

NOTHING_IN, NOTHING_OUT = dg.In(dg.Nothing), dg.Out(dg.Nothing)
"""Inputs and outputs without values: data is passed in tables and topics."""


def asset_spec(entry: Topic, system: str, deps: Sequence[Sequence[str]], **attributes: Any) -> dg.AssetSpec:
    """Return the spec of the asset `<entry>/<system>`, with further attributes of Dagster's AssetSpec."""
    if entry.automation == "none":
        attributes["automation_condition"] = None
    return dg.AssetSpec(
        key=[entry.name, system],
        deps=deps,
        group_name=entry.group or group(entry),
        tags=entry.tags,
        partitions_def=partitions(entry),
        owners=entry.owners,
        **attributes,
    )


Materialize = Callable[..., dg.MaterializeResult | Iterator[dg.AssetCheckResult | dg.MaterializeResult] | None]


def table_op(
    spec: dg.AssetSpec,
    pool: str,
    resources: Collection[str],
    check_specs: Iterable[dg.AssetCheckSpec] = (),
    config: type[dg.Config] | None = None,
    *,
    may_skip: bool = False,
    priority: int = 0,
) -> Callable[[Materialize], dg.AssetsDefinition]:
    """Return a decorator that makes a function the op that materializes an asset.

    The function takes the context, an object with the resources as attributes, and the run's configuration if `config`
    is a class. The op is built from Dagster's definitions instead of its decorators, which inspect the function's
    signature and resolve its types repeatedly: this halves the load time of a thousand topics.

    Args:
        spec: The asset.
        pool: The concurrency pool, which has one slot.
        resources: Keys of the required resources.
        check_specs: Checks whose results the function yields.
        config: Class of the run's configuration.
        may_skip: Whether the function may return no result, so that the asset is not materialized.
        priority: Among the steps of a run that are ready, those with the highest priority begin.
    """

    def decorate(function: Materialize) -> dg.AssetsDefinition:
        name = naming.node_name(*spec.key.path)
        checks = {check.get_python_identifier(): check for check in check_specs}
        upstream = {dep.asset_key.to_python_identifier(): dep.asset_key for dep in spec.deps}

        def run(context: dg.AssetExecutionContext, _: Mapping[str, Any]) -> Iterator[object]:
            arguments = [config(**context.op_execution_context.op_config)] if config else []
            topic = context.partition_key if context.has_partition_key else spec.key.path[0]
            with repeated(RETRY, context.retry_number), failures_logged(context, topic):
                results = function(context, context.resources, *arguments)
                yield from results if isinstance(results, Iterator) else filter(None, [results])

        node = dg.OpDefinition(
            run,
            name,
            ins=dict.fromkeys(upstream, NOTHING_IN),
            outs={name: dg.Out(dg.Nothing, is_required=not may_skip), **dict.fromkeys(checks, NOTHING_OUT)},
            config_schema=_schema(config) if config else None,
            required_resource_keys=set(resources),
            pool=pool,
            tags={"dagster/priority": str(priority)} if priority else None,
        )
        return dg.AssetsDefinition(
            node_def=node,
            specs=[spec],
            keys_by_input_name=upstream,
            keys_by_output_name={name: spec.key},
            check_specs_by_output_name=checks,
        )

    return decorate


@cache
def _schema(config: type[dg.Config]) -> Any:
    return config.to_config_schema()


OPTIONAL_OUT = dg.Out(dg.Nothing, is_required=False)
"""Output of a check, which is optional because a run may select only some of the checks."""


@dataclass(frozen=True)
class CheckDefinition:
    """Definition of one check."""

    name: str
    description: str
    """The statement that is true if the check passes."""
    needs: frozenset[str]
    """Keys of the required resources."""
    run: Callable[[dg.AssetCheckExecutionContext], dg.AssetCheckResult]
    """Evaluates the check."""
    blocking: bool = False
    """Whether a failure blocks the assets downstream."""
    by_clock: bool = False
    """Whether the check runs every hour, because its subject changes without a run of the asset."""
    is_of_snapshot: bool = False
    """Whether the check has passed for the snapshot once it passes: its subject changes only with the asset."""


def _when_due(entry: Topic, check: CheckDefinition) -> dg.AutomationCondition:
    if check.by_clock or (entry.continuous and not check.is_of_snapshot):
        return hourly()
    return hourly_until_passed() if entry.continuous else with_the_asset()


def asset_checks(entry: Topic, system: str, checks: Sequence[CheckDefinition]) -> dg.AssetChecksDefinition:
    """Return the checks of the asset `<entry>/<system>`, in one step.

    One step per check would take a third of the load time of the definitions. If a check raises an error, the other
    checks still report.
    """
    key = dg.AssetKey([entry.name, system])
    specs = [
        dg.AssetCheckSpec(
            check.name,
            asset=key,
            description=check.description,
            blocking=check.blocking,
            automation_condition=_when_due(entry, check),
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
            with failures_logged(context, entry.name):
                raise dg.Failure(text, reasons, allow_retries=False) from first

    node = dg.OpDefinition(
        run_checks,
        naming.node_name(*key.path, "checks"),
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


RETRY = dg.RetryPolicy(max_retries=3, delay=5, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)
"""When steps of runs are repeated. Permanent errors are raised with `allow_retries=False`."""


@contextmanager
def dagster_failures(*topics: Topic) -> Iterator[None]:
    """Raise a LakehouseError as a Failure with its message, and other errors unchanged.

    Args:
        topics: The topics of the work. If one has sensitive columns, the texts of other errors are withheld.
    """
    with translate({LakehouseError: _failure}), hide_values(*topics):
        yield


@contextmanager
def repeated(policy: dg.RetryPolicy, retries: int) -> Iterator[None]:
    """Let Dagster repeat a step after any error except a Failure that does not allow it.

    The retry policy of an op would also repeat a step whose run is terminated, instead of ending it
    (dagster/_core/execution/plan/utils.py, op_execution_error_boundary).

    Args:
        policy: The number of retries and their delays.
        retries: The number of retries so far.
    """
    try:
        yield
    except dg.DagsterError:
        raise
    except Exception as error:
        if isinstance(error, dg.Failure) and not error.allow_retries:
            raise
        raise dg.RetryRequested(policy.max_retries, policy.calculate_delay(retries + 1)) from error


def _failure(error: LakehouseError) -> dg.Failure:
    system = failing_system(error)
    return dg.Failure(str(error), {SYSTEM: system} if system else None, allow_retries=is_transient(error))
