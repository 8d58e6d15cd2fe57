"""An asset of an entry and the step that materializes it, with what all of them have in common."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import dagster as dg

from assets.entry import group, partitions
from assets.failures import RETRY
from lakehouse.config.topic import Topic

NOTHING_IN, NOTHING_OUT = dg.In(dg.Nothing), dg.Out(dg.Nothing)
"""What steps pass on is in tables and topics. A check's result needs no type, either."""


def asset_spec(entry: Topic, system: str, deps: Sequence[Sequence[str]], **attributes: Any) -> dg.AssetSpec:
    """The asset `system/<entry>`, with further attributes of Dagster's AssetSpec."""
    return dg.AssetSpec(
        key=[system, entry.name],
        deps=deps,
        group_name=group(entry),
        partitions_def=partitions(entry),
        owners=entry.owners,
        **attributes,
    )


Materialize = Callable[..., dg.MaterializeResult | Iterator[dg.AssetCheckResult | dg.MaterializeResult]]


def step(
    spec: dg.AssetSpec,
    pool: str,
    resources: Collection[str],
    check_specs: Iterable[dg.AssetCheckSpec] = (),
    config: type[dg.Config] | None = None,
) -> Callable[[Materialize], dg.AssetsDefinition]:
    """Make a function the step that materializes an asset, one at a time in its pool.

    The function takes the context, an object with the resources as attributes, and the run's configuration where there
    is a class for it. The step is put together from Dagster's definitions, because its decorators inspect a function's
    signature and resolve its types over and over: a thousand topics load in half the time.

    Args:
        spec: The asset.
        pool: The pool, of which one step runs at a time.
        resources: The keys of the resources that the function takes.
        check_specs: Checks whose results the function yields.
        config: The class of the run's configuration.
    """

    def decorate(function: Materialize) -> dg.AssetsDefinition:
        name = spec.key.to_python_identifier()
        checks = {check.get_python_identifier(): check for check in check_specs}
        upstream = {dep.asset_key.to_python_identifier(): dep.asset_key for dep in spec.deps}

        def run(context: dg.AssetExecutionContext, _: Mapping[str, Any]) -> Iterator[object]:
            given = [config(**context.op_execution_context.op_config)] if config else []
            made = function(context, context.resources, *given)
            yield from made if isinstance(made, Iterator) else [made]

        node = dg.OpDefinition(
            run,
            name,
            ins=dict.fromkeys(upstream, NOTHING_IN),
            outs=dict.fromkeys([name, *checks], NOTHING_OUT),
            config_schema=_schema(config) if config else None,
            required_resource_keys=set(resources),
            retry_policy=RETRY,
            pool=pool,
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
