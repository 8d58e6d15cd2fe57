"""Diagnosis of a Dagster instance: the settings on which runs of lakehouse rest. Nothing is changed."""

from collections.abc import Collection, Iterator

import dagster as dg
from dagster._core.instance.config import PoolGranularity

from assets.freshness import IN_PROGRESS
from assets.streaming.job import JOB
from lakehouse.core.errors import Diagnostic
from lakehouse.core.text import pluralize

SUBJECT = "Dagster"


def pools_of(definitions: dg.Definitions) -> set[str]:
    """Return the pools of the tables and readers of an environment."""
    assets = [asset for asset in definitions.assets or () if isinstance(asset, dg.AssetsDefinition)]
    nodes = [asset.node_def for asset in assets if asset.is_executable]
    return {node.pool for node in nodes if isinstance(node, dg.OpDefinition) and node.pool}


def examine_instance(instance: dg.DagsterInstance, pools: Collection[str]) -> Iterator[Diagnostic]:
    """Yield a diagnostic of each difference from the settings that runs need; of the instance if there is none.

    Args:
        instance: The instance that the daemon uses.
        pools: The pools of the environment.
    """
    differences = [*_settings(instance), *_limits(instance, pools), *_unwatched(instance)]
    yield from differences
    if not differences:
        storage, launcher = (type(part).__name__ for part in (instance.event_log_storage, instance.run_launcher))
        yield Diagnostic(SUBJECT, True, f"{storage}, {launcher}: its settings are those that runs need")


def _settings(instance: dg.DagsterInstance) -> Iterator[Diagnostic]:
    """Yield the differences of dagster.yaml. docs/production.md, Settings of Dagster, has what each is for."""
    pools = instance.get_concurrency_config().pool_config
    granularity = pools.pool_granularity.value if pools.pool_granularity else None
    monitoring, seconds = instance.run_monitoring_settings, "run_monitoring.{}_seconds"
    start, cancel = instance.run_monitoring_start_timeout_seconds, instance.run_monitoring_cancel_timeout_seconds
    runtime, free = instance.run_monitoring_max_runtime_seconds, monitoring.get("free_slots_after_run_end_seconds")
    retries, repeats_steps = instance.run_retries_max_retries, instance.run_retries_retry_on_asset_or_op_failure
    hanging = "a run that hangs would occupy its table forever"
    for key, value, is_right, needed, effect in (
        ("concurrency.pools.default_limit", pools.default_pool_limit, pools.default_pool_limit == 1, "1",
         "runs of one table would compete, and those that lose fail"),
        ("concurrency.pools.granularity", granularity, granularity == PoolGranularity.OP.value, "op",
         "runs that the queue does not start, such as those of `dg launch`, would compete"),
        ("run_monitoring.enabled", instance.run_monitoring_enabled, instance.run_monitoring_enabled, "true",
         "a run whose worker was killed would occupy its table forever"),
        (seconds.format("start_timeout"), start, start > 0, "300", hanging),
        (seconds.format("cancel_timeout"), cancel, cancel > 0, "180", hanging),
        (seconds.format("max_runtime"), runtime, runtime > 0, "7200", hanging),
        (seconds.format("free_slots_after_run_end"), free, bool(free), "60",
         "a run that was killed or cancelled would occupy its table forever"),
        ("run_retries.enabled", instance.run_retries_enabled, instance.run_retries_enabled, "true",
         "a run whose worker was killed would not be repeated"),
        ("run_retries.max_retries", retries, retries > 0, "2", "a run whose worker was killed would not be repeated"),
        ("run_retries.retry_on_asset_or_op_failure", repeats_steps, not repeats_steps, "false",
         "failures that a person must resolve would be repeated"),
    ):  # fmt: skip
        if not is_right:
            shown = "not set" if value is None else str(value).lower()
            remedy = f"Set `{key}: {needed}` in dagster.yaml, and start Dagster's processes again"
            yield Diagnostic(SUBJECT, False, f"{key} is {shown}: {effect}", remedy)


def _limits(instance: dg.DagsterInstance, pools: Collection[str]) -> Iterator[Diagnostic]:
    """Yield the pools whose limit a person changed in the UI, which precedes the default."""
    for pool in instance.event_log_storage.get_pool_limits():
        if pool.name in pools and not pool.from_default and pool.limit != 1:
            effect = "runs of its table would compete" if pool.limit else "no step of it starts"
            remedy = f"Set the limit of pool {pool.name} to 1 in Dagster's UI (Deployment, Concurrency)"
            yield Diagnostic(SUBJECT, False, f"pool {pool.name} has {pluralize(pool.limit, 'slot')}: {effect}", remedy)


def _unwatched(instance: dg.DagsterInstance) -> Iterator[Diagnostic]:
    """Yield the run of the job `stream`, which has no time limit, if nothing detects that its worker was killed."""
    if instance.run_launcher.supports_check_run_worker_health:
        return
    for run in instance.get_runs(dg.RunsFilter(job_name=JOB, statuses=list(IN_PROGRESS))):
        launcher = type(instance.run_launcher).__name__
        effect = f"run {run.run_id} of the job stream would count as running forever if its worker was killed"
        remedy = (
            "Run `lakehouse stream` as a process of its own and switch off the sensor stream_supervisor, or use a "
            "launcher that watches workers, such as K8sRunLauncher"
        )
        yield Diagnostic(SUBJECT, False, f"run_launcher is {launcher}, which does not watch workers: {effect}", remedy)
