"""Deletion of old runs and their files, without loss of what Dagster stores of assets."""

import shutil
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from assets.embedded_stack import RETENTION_DAYS, old_runs_definitions, purge
from assets.entry import on_upstream_change

TOPICS = dg.DynamicPartitionsDefinition(name="topics")


@dg.asset
def upstream() -> dg.MaterializeResult:
    return dg.MaterializeResult(data_version=dg.DataVersion("1"))


@dg.asset(deps=[upstream], automation_condition=on_upstream_change())
def downstream(context: dg.AssetExecutionContext) -> None:
    print("to the compute log")


@dg.asset(partitions_def=TOPICS)
def routed() -> None: ...


@dg.asset_check(asset=upstream)
def checked() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=False)


@dg.op
def no_op() -> None: ...


@dg.job
def job_without_assets() -> None:
    no_op()


@dg.job
def failing() -> None:
    @dg.op
    def fails() -> None:
        raise ValueError

    fails()


DEFINITIONS = dg.Definitions(assets=[upstream, downstream, routed], asset_checks=[checked], jobs=[job_without_assets])
CHECK = dg.AssetCheckKey(dg.AssetKey("upstream"), "checked")


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """The home of an instance with databases and no run."""
    folder = tmp_path_factory.mktemp("dagster")
    (folder / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    with dg.DagsterInstance.from_config(str(folder)) as instance:
        instance.add_dynamic_partitions("topics", ["a", "b"])
    return folder


@pytest.fixture
def instance(empty, tmp_path):
    shutil.copytree(empty, tmp_path, dirs_exist_ok=True)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        yield instance


def materialize(instance, *assets, **options):
    return dg.materialize([*assets], instance=instance, **options).run_id


def after(**ago):
    return datetime.now(UTC) + timedelta(**ago)


def clean(instance, **ago):
    return purge(instance, after(**ago))


def runs(instance):
    return {run.run_id for run in instance.get_runs()}


def files_of(tmp_path, run_id):
    return [file for file in tmp_path.rglob("*") if run_id in str(file) and file.is_file()]


def test_purge_old_superseded_run_is_deleted_with_files(instance, tmp_path):
    first, second = (materialize(instance, upstream, downstream) for _ in range(2))
    assert clean(instance, days=RETENTION_DAYS[dg.DagsterRunStatus.SUCCESS] - 1) == 0
    assert files_of(tmp_path, first)
    assert clean(instance, days=8) == 1
    assert runs(instance) == {second}
    assert files_of(tmp_path, first) == [] and files_of(tmp_path, second)
    assert clean(instance, days=8) == 0


def test_purge_failed_run_is_kept_longer(instance):
    succeeded = job_without_assets.execute_in_process(instance=instance).run_id
    failed = failing.execute_in_process(instance=instance, raise_on_error=False).run_id
    assert runs(instance) == {succeeded, failed}
    clean(instance, days=8)
    assert runs(instance) == {failed}
    clean(instance, days=31)
    assert runs(instance) == set()


def test_purge_unfinished_run_is_kept(instance):
    run = instance.create_run_for_job(job_without_assets)
    clean(instance, days=1000)
    assert runs(instance) == {run.run_id}


def test_purge_newest_run_of_asset_and_partition_is_kept(instance):
    of_a, superseded, of_b = (materialize(instance, routed, partition_key=key) for key in "abb")
    of_both = materialize(instance, upstream, downstream)
    of_one = materialize(instance, upstream)
    selection = dg.AssetSelection.checks(CHECK)
    of_check = dg.materialize([upstream, checked], selection=selection, instance=instance).run_id
    clean(instance, days=1000)
    assert runs(instance) == {of_a, of_b, of_both, of_one} and superseded not in runs(instance)
    assert instance.get_materialized_partitions(routed.key) == {"a", "b"}
    # The result of a check is stored apart from its run.
    [record] = instance.event_log_storage.get_latest_asset_check_execution_by_key([CHECK]).values()
    assert record.run_id == of_check and not record.evaluation.passed


def test_purge_causes_no_automation_request(instance):
    before = dg.evaluate_automation_conditions(DEFINITIONS, instance)
    for _ in range(2):
        materialize(instance, upstream, downstream)
    idle = dg.evaluate_automation_conditions(DEFINITIONS, instance, cursor=before.cursor)
    assets = [upstream.key, downstream.key]
    materialized_by = {key: instance.get_latest_materialization_event(key).run_id for key in assets}
    assert clean(instance, days=1000) == 1
    after = dg.evaluate_automation_conditions(DEFINITIONS, instance, cursor=idle.cursor)
    assert after.total_requested == 0
    assert {key: instance.get_latest_materialization_event(key).run_id for key in materialized_by} == materialized_by
    materialize(instance, upstream)
    assert dg.evaluate_automation_conditions(DEFINITIONS, instance, cursor=after.cursor).total_requested == 1


def test_old_runs_job_deletes_old_runs(instance):
    definitions = dg.Definitions.merge(DEFINITIONS, old_runs_definitions())
    result = definitions.resolve_job_def("old_runs").execute_in_process(instance=instance)
    assert result.success and runs(instance) == {result.run_id}
