"""Alerts for failed runs: one message when a cause begins, and one when it has ended."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import dagster as dg

from assets.alert_causes import SYSTEM, Causes, cause_of
from assets.alerts import (
    INTERVAL_SECONDS,
    MAX_EVENTS,
    MAX_LISTED,
    OFF,
    STARTS,
    TickMessages,
    listed,
    progress,
    result,
)
from resources.webhook import Webhook

RESTARTED = "lakehouse/restarted"
"""Tag of runs that a sensor restarts whenever one ends."""
LASTING_SECONDS = 600
"""Duration after which a run with the tag RESTARTED counts as working."""

ENDS = dg.DagsterEventType.RUN_FAILURE, dg.DagsterEventType.RUN_SUCCESS
STEP_ENDS = {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.STEP_SUCCESS}


@dg.sensor(
    name="alert_failed_runs",
    description="Sends a message when runs start to fail because of a cause and when it has ended.",
    minimum_interval_seconds=INTERVAL_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def alert_failed_runs(context: dg.SensorEvaluationContext, alerts: Webhook) -> dg.SensorResult:
    """Send one message when runs fail because of a new cause, and one when the failed steps succeed.

    The cursor contains the last processed end of a run, and the failing steps with their causes. The first tick starts
    at the end of the log.

    Raises:
        Unreachable: The tick's first message was not delivered; the cursor stays.
    """
    log = context.instance.event_log_storage
    after, causes = progress(context)
    if after is None or not alerts.url:
        return result(Causes({}), log.get_maximum_record_id() or 0, STARTS if alerts.url else OFF)
    sending = TickMessages(context, alerts)
    # Dagster does not support a query for both.
    failures, successes = (log.get_logs_for_all_runs_by_log_id(after, kind, MAX_EVENTS) for kind in ENDS)
    for storage_id, entry in sorted([*failures.items(), *successes.items()])[:MAX_EVENTS]:
        if not _process(context, entry, causes, sending):
            break
        after = storage_id
        if sending.is_late:
            break
    else:
        for job in _working_jobs(context.instance, causes):
            if not sending.try_send(f"{job} works again", [f"Resolved: {causes.failing[job]}"], ""):
                break
            causes.end(job)
    return result(causes, after, f"Messages sent: {sending.sent}" if sending.sent else "No cause began or ended")


def _process(
    context: dg.SensorEvaluationContext, entry: dg.EventLogEntry, causes: Causes, sending: TickMessages
) -> bool:
    """Send the message about the end of a run, if it needs one. Return False if it was not delivered."""
    if entry.get_dagster_event().event_type == dg.DagsterEventType.RUN_SUCCESS and not causes.failing:
        return True
    run = context.instance.get_run_by_id(entry.run_id)
    if run is None or not _is_of_location(context, run):
        return True
    return _alert(_Ended.of(context.instance, run, entry), causes, sending)


@dataclass(frozen=True)
class _Failure:
    reason: str
    system: str = ""


@dataclass(frozen=True)
class _Ended:
    """A run that has ended, with the failure of each subject (None if it succeeded): its steps, or the run itself."""

    run: dg.DagsterRun
    subjects: Mapping[str, _Failure | None]
    has_worked: bool = False
    """Whether it is a restarted run that worked before it ended."""

    @staticmethod
    def of(instance: dg.DagsterInstance, run: dg.DagsterRun, entry: dg.EventLogEntry) -> "_Ended":
        """Return what a run did until it ended."""
        if RESTARTED in run.tags:
            steps = [*_steps(instance, run)]
            failures = [failure for _, failure in steps if failure]
            failure = failures[0] if failures else _outside_steps(run, entry)
            [record] = instance.get_run_records(dg.RunsFilter(run_ids=[run.run_id]))
            return _Ended(run, {f"Job {run.job_name}": failure}, _is_lasting(record))
        partition = run.tags.get("dagster/partition")
        suffix = f" [{partition}]" if partition else ""
        subjects = {f"{step}{suffix}": failure for step, failure in _steps(instance, run)}
        if any(subjects.values()):
            return _Ended(run, subjects)
        return _Ended(run, {**subjects, f"Run of {_name(run)}{suffix}": _outside_steps(run, entry)})


def _outside_steps(run: dg.DagsterRun, entry: dg.EventLogEntry) -> _Failure | None:
    """Return Dagster's message for a run that failed although no step did; None if the run succeeded."""
    event = entry.get_dagster_event()
    if event.event_type == dg.DagsterEventType.RUN_SUCCESS:
        return None
    return _Failure((event.message or "No reason is known").partition("\n")[0])


def _steps(instance: dg.DagsterInstance, run: dg.DagsterRun) -> Iterator[tuple[str, _Failure | None]]:
    """Yield each step that has ended with its failure."""
    for entry in instance.all_logs(run.run_id, of_type=STEP_ENDS):
        event = entry.get_dagster_event()
        yield str(event.step_key), _failure(event) if event.is_step_failure else None


def _failure(event: dg.DagsterEvent) -> _Failure:
    """Return the description of a `dg.Failure`, which assets/factories.py raises, or the type of any other error."""
    data = event.step_failure_data
    if data.user_failure_data and data.user_failure_data.description:
        system = data.user_failure_data.metadata.get(SYSTEM)
        return _Failure(data.user_failure_data.description, str(system.value) if system else "")
    error = data.error
    while error and error.cause:
        error = error.cause
    return _Failure(f"{error.cls_name if error else 'an error'}, see the run's log")


def _alert(ended: _Ended, causes: Causes, sending: TickMessages) -> bool:
    """Send the message about a run, if a cause begins or ends, and note it. Return False if it was not delivered."""
    after, begun, resolved = Causes(causes.failing), [], []
    for subject, failure in ended.subjects.items():
        if failure is None:
            resolved.append(after.end(subject))
            continue
        cause = cause_of(subject, failure.reason, failure.system)
        if ended.has_worked:
            after.end(subject)
        if after.begins(subject, cause):
            begun.append(f"{subject.partition(' [')[0]}: {failure.reason}")
        resolved.append(after.fail(subject, cause))
    shown = [f"Resolved: {cause}" for cause in dict.fromkeys(filter(None, resolved))]
    if begun or shown:
        more = [f"and {len(begun) - MAX_LISTED:,} more steps"] if len(begun) > MAX_LISTED else []
        lines = [*begun[:MAX_LISTED], *more, *shown[:MAX_LISTED], f"Run {ended.run.run_id}"]
        headline = f"Run {'failed' if begun else 'recovered'}: {_name(ended.run)}"
        if not sending.try_send(headline, lines, f"/runs/{ended.run.run_id}"):
            return False
    causes.failing = after.failing
    return True


def _name(run: dg.DagsterRun) -> str:
    """Return the name of a run in messages: its job, or its assets if Dagster made the job for a selection of them."""
    assets = listed(sorted(key.to_user_string() for key in run.asset_selection or ()))
    return assets if assets and run.job_name.startswith("__") else run.job_name


def _working_jobs(instance: dg.DagsterInstance, causes: Causes) -> Iterator[str]:
    """Yield the failing jobs that are restarted automatically, and whose present run has lasted long enough."""
    for subject in [subject for subject in causes.failing if subject.startswith("Job ")]:
        job = subject.removeprefix("Job ")
        running = dg.RunsFilter(job_name=job, statuses=[dg.DagsterRunStatus.STARTED])
        if any(map(_is_lasting, instance.get_run_records(running))):
            yield subject


def _is_lasting(record: dg.RunRecord) -> bool:
    """Return whether a run has been running for so long, or ran for so long, that it counts as working."""
    now = time.time()
    return (record.end_time or now) - (record.start_time or now) >= LASTING_SECONDS


def _is_of_location(context: dg.SensorEvaluationContext, run: dg.DagsterRun) -> bool:
    """Return whether a run is of this code location: other projects may share the instance and its event log."""
    origin, of_sensor = run.remote_job_origin, context.code_location_origin
    location = origin.repository_origin.code_location_origin.location_name if origin else None
    return location == (of_sensor.location_name if of_sensor else None)
