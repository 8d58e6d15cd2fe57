"""Old runs are deleted with their files; what Dagster knows of assets stays."""

import shutil
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from assets.automation import on_upstream_change
from assets.sensors.old_runs import KEPT_DAYS, old_runs_definitions, purge

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
def nothing() -> None: ...


@dg.job
def job_without_assets() -> None:
    nothing()


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
    """The home of an instance that has its databases and no run."""
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


def later(**ago):
    return datetime.now(UTC) + timedelta(**ago)


def clean(instance, **ago):
    return purge(instance, later(**ago))


def runs(instance):
    return {run.run_id for run in instance.get_runs()}


def files_of(tmp_path, run_id):
    return [file for file in tmp_path.rglob("*") if run_id in str(file) and file.is_file()]


def test_a_run_goes_with_all_its_files_once_it_is_old_and_another_took_its_place(instance, tmp_path):
    first, second = (materialize(instance, upstream, downstream) for _ in range(2))
    assert clean(instance, days=KEPT_DAYS[dg.DagsterRunStatus.SUCCESS] - 1) == 0
    assert files_of(tmp_path, first)
    assert clean(instance, days=8) == 1
    assert runs(instance) == {second}
    assert files_of(tmp_path, first) == [] and files_of(tmp_path, second)
    assert clean(instance, days=8) == 0


def test_runs_without_assets_go_and_failed_ones_are_kept_longer(instance):
    done = job_without_assets.execute_in_process(instance=instance).run_id
    failed = failing.execute_in_process(instance=instance, raise_on_error=False).run_id
    assert runs(instance) == {done, failed}
    clean(instance, days=8)
    assert runs(instance) == {failed}
    clean(instance, days=31)
    assert runs(instance) == set()


def test_a_run_that_has_not_ended_is_kept(instance):
    run = instance.create_run_for_job(job_without_assets)
    clean(instance, days=1000)
    assert runs(instance) == {run.run_id}


def test_the_newest_run_of_each_asset_and_partition_is_kept(instance):
    of_a, superseded, of_b = (materialize(instance, routed, partition_key=key) for key in "abb")
    of_both = materialize(instance, upstream, downstream)
    of_one = materialize(instance, upstream)
    only_check = dg.AssetSelection.checks(CHECK)
    of_check = dg.materialize([upstream, checked], selection=only_check, instance=instance).run_id
    clean(instance, days=1000)
    assert runs(instance) == {of_a, of_b, of_both, of_one} and superseded not in runs(instance)
    assert instance.get_materialized_partitions(routed.key) == {"a", "b"}
    # What a check found is remembered without its run.
    [found] = instance.event_log_storage.get_latest_asset_check_execution_by_key([CHECK]).values()
    assert found.run_id == of_check and not found.evaluation.passed


def test_automation_requests_nothing_because_runs_are_gone(instance):
    before = dg.evaluate_automation_conditions(DEFINITIONS, instance)
    for _ in range(2):
        materialize(instance, upstream, downstream)
    settled = dg.evaluate_automation_conditions(DEFINITIONS, instance, cursor=before.cursor)
    known = {key: instance.get_latest_materialization_event(key).run_id for key in [upstream.key, downstream.key]}
    assert clean(instance, days=1000) == 1
    after = dg.evaluate_automation_conditions(DEFINITIONS, instance, cursor=settled.cursor)
    assert after.total_requested == 0
    assert {key: instance.get_latest_materialization_event(key).run_id for key in known} == known
    materialize(instance, upstream)
    assert dg.evaluate_automation_conditions(DEFINITIONS, instance, cursor=after.cursor).total_requested == 1


def test_the_job_deletes_them(instance):
    loaded = dg.Definitions.merge(DEFINITIONS, old_runs_definitions())
    done = loaded.resolve_job_def("old_runs").execute_in_process(instance=instance)
    assert done.success and runs(instance) == {done.run_id}
