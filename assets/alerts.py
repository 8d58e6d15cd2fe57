"""Who is told when something fails: runs, and checks, of which most fail in runs that succeed or in none at all."""

import json
import os
from collections.abc import Iterator, Sequence

import dagster as dg

from resources.webhook import Webhook, escaped

TICK_SECONDS = 30
LONGEST = 600
"""Characters of an error or a description that a message has."""

FAILED, PASSED = "FAILED", "SUCCEEDED"
"""Dagster's words for a check's last execution; any other says that it did not come to a verdict."""


@dg.run_failure_sensor(name="failed_runs", default_status=dg.DefaultSensorStatus.RUNNING)
def failed_runs(context: dg.RunFailureSensorContext, alerts: Webhook) -> None:
    """Tells of each run that failed, with the errors of its steps."""
    run = context.dagster_run
    errors = [f"• `{event.step_key}`: {_error(event)}" for event in context.get_step_failure_events()]
    alerts.send(
        "\n".join([f":red_circle: Run *{escaped(run.job_name)}* failed {_link(f'runs/{run.run_id}')}", *errors])
    )


def _error(event: dg.DagsterEvent) -> str:
    """What a step failed with: the project's own sentence where there is one."""
    data = event.step_failure_data
    if data.user_failure_data and data.user_failure_data.description:
        said = data.user_failure_data.description
    else:
        said = data.error.message if data.error else "failed"
    return escaped(said.strip()[:LONGEST])


def failed_checks_sensor(keys: Sequence[dg.AssetCheckKey]) -> dg.SensorDefinition:
    """Tells of each check that begins to fail, and of each that passes again.

    Parameters: the checks to watch. A check that stays failed is told of once. What failed before the first tick is
    told of by that.
    """

    @dg.sensor(
        name="failed_checks",
        description="Tells of checks that begin to fail, or pass again.",
        minimum_interval_seconds=TICK_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def failed_checks(context: dg.SensorEvaluationContext, alerts: Webhook) -> dg.SensorResult:
        before = set(json.loads(context.cursor or "[]"))
        failing = dict(_verdicts(context.instance, keys, before))
        lines = [said for check, said in failing.items() if said and check not in before]
        lines += [f":white_check_mark: *{escaped(check)}* passes again" for check in sorted(before - failing.keys())]
        # First the message: where it does not arrive, this tick fails, and the next tells of the same.
        if lines:
            alerts.send("\n".join(lines))
        return dg.SensorResult(cursor=json.dumps(sorted(failing)))

    return failed_checks


def _verdicts(
    instance: dg.DagsterInstance, keys: Sequence[dg.AssetCheckKey], before: set[str]
) -> Iterator[tuple[str, str]]:
    """The checks that fail now, with what to say of them; those without a new verdict stay as they were."""
    latest = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    for key in keys:
        check = f"{key.asset_key.to_user_string()} {key.name}"
        record = latest.get(key)
        status = record.status.value if record else None
        if record and status == FAILED and record.event and record.event.dagster_event:
            found = record.event.dagster_event.asset_check_evaluation_data
            mark = ":red_circle:" if found.severity == dg.AssetCheckSeverity.ERROR else ":large_yellow_circle:"
            said = escaped((found.description or "it failed")[:LONGEST])
            yield check, f"{mark} *{escaped(check)}*: {said} {_link(f'assets/{key.asset_key.to_user_string()}')}"
        elif status != PASSED and check in before:
            yield check, ""


def _link(path: str) -> str:
    """A link into the UI, where LAKEHOUSE_UI_URL says where that is."""
    ui = os.environ.get("LAKEHOUSE_UI_URL")
    return f"<{ui}/{path}|look>" if ui else f"({path})"
