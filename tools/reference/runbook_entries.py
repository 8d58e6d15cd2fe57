"""The places to look at, and the actions, for each class of errors and each alert rule of the runbook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Entry(NamedTuple):
    """The part of a section of the runbook that the code does not have."""

    look_at: str
    action: str


_RETRIED = "Nothing, if it does not last: runs and streams retry by themselves."
_AWS = "The code of AWS, the ARN and the missing right in the message; `lakehouse deploy doctor`."
_CONFLUENT = "The status and the id of the request in the message; `lakehouse deploy plan` shows the present state."

ERRORS: Mapping[str, Entry] = {
    "Absent": Entry(_AWS, "Run the command again, which looks for the object first."),
    "AuditFailed": Entry(
        "The failed checks with samples of rows: the asset's page in Dagster, or `lakehouse check TOPIC`. The rows "
        "are on "
        "the branch that the message names.",
        "Correct the producer, the check or the referenced table. The next attempt stages the batch again. If the "
        "rows are "
        "wanted, change the check's `severity` in lakehouse.yaml.",
    ),
    "AwsError": Entry(_AWS, "Grant the named right, or sign in again, and repeat the command."),
    "BadRecords": Entry(
        "The partition, the offset and the reason in the message; `lakehouse dry-run TOPIC` decodes the next records "
        "without "
        "publishing them.",
        "Register the missing schema or correct the topic's format, or let such records become dead letters with "
        "`errors: "
        "log`, and `lakehouse redrive TOPIC` later.",
    ),
    "ClockSkew": Entry(
        "`timedatectl` on each machine that writes, Spark's included; `lakehouse doctor --env NAME`.",
        "Synchronize the clocks. Nothing was committed, and the next attempt continues.",
    ),
    "CommitConflict": Entry(
        "Whether two streams or a stream and a run write the same table: `lakehouse status`, Dagster's runs.",
        f"{_RETRIED} If it lasts, stop one of the writers, or declare the topic `continuous: true`.",
    ),
    "ConfigError": Entry(
        "The file, line and key in the message; `lakehouse validate`.",
        "Correct lakehouse.yaml, and start streams and Dagster's code location again.",
    ),
    "Conflict": Entry(_CONFLUENT, "Rename or delete the other object, and run the command again."),
    "ConfluentError": Entry(_CONFLUENT, "Correct the reported cause, and run the command again, which continues."),
    "DoesNotExist": Entry(
        "`SHOW GRANTS TO ROLE …` in Snowflake, for the role of the environment.",
        "Create the object or grant the role, for example by `lakehouse deploy create`.",
    ),
    "ErrorResponse": Entry(
        "The status and text in the message, and the log of the REST catalog.",
        "Correct the catalog or its settings in lakehouse.yaml. Its state decides whether a commit succeeded, and the "
        "next "
        "attempt reads it.",
    ),
    "Failed": Entry(
        "The object in the console of its cloud; `lakehouse deploy plan`.",
        "Remove the reported cause, delete the object if it cannot recover, and run `lakehouse deploy create` again.",
    ),
    "Forbidden": Entry(_CONFLUENT, "Grant the role to the key's owner, or use another Cloud API key."),
    "IncompatibleSchema": Entry(
        "`lakehouse plan TOPIC`, which names each change and whether the table can follow it.",
        "Register a compatible version, or let the table roll over (`on_incompatible: new_table`).",
    ),
    "IncompatibleSettings": Entry(
        "The recorded and the declared settings in the message.",
        "Restore the former settings in lakehouse.yaml, or begin another table with the new ones.",
    ),
    "IncompleteReplacement": Entry(
        "Whether the REST catalog answers, and its log.",
        "Run the command again: the repetition completes the replacement.",
    ),
    "InvalidRequest": Entry(_CONFLUENT, "Correct the value of lakehouse.yaml that the message names."),
    "LakehouseError": Entry(
        "The message, which has the problem, its effect and the remedy; `lakehouse status`.",
        "Follow the remedy. It is the class of errors without a class of their own.",
    ),
    "NewerFormat": Entry(
        "The versions of all processes that write the tables (`lakehouse --version`).",
        "Upgrade this process ([upgrades](upgrades.md)). Nothing was changed.",
    ),
    "NotFound": Entry(_CONFLUENT, "Run the command again, which creates what is missing."),
    "OutcomeUnknownError": Entry(
        "Whether the change exists in the system that the message names.",
        "Run the command again: it looks the outcome up before it repeats anything.",
    ),
    "Paused": Entry(
        "`lakehouse status`: since when, by whom and why.",
        "`lakehouse unpause TOPIC`, once the reason no longer applies. Kafka's retention continues meanwhile.",
    ),
    "RateLimited": Entry(_CONFLUENT, "Wait some minutes, and run the command again, which continues."),
    "RequestRejected": Entry(
        "The system's response in the message: often a permission or an invalid name.",
        "Correct it in that system or in lakehouse.yaml. A retry alone does not help.",
    ),
    "SchemaError": Entry(
        "`lakehouse plan TOPIC`, and the schema in the registry.",
        "Register a schema that the table can have ([types](types.md)).",
    ),
    "Stalled": Entry(
        "The system's own log, and whether it has executors, memory and disk space; `lakehouse status`.",
        f"{_RETRIED} If the work is legitimate, raise `stall_seconds` of that system in lakehouse.yaml.",
    ),
    "TimedOut": Entry(
        "The object in the console of its cloud; `lakehouse deploy plan`.",
        "Run the command again once the object is ready: it continues there.",
    ),
    "TransformFailed": Entry(
        "The traceback in the log, and the rows of the source that the message names.",
        "Correct the transform, and start the process again. The derived topic continues at its bookmark.",
    ),
    "TransientError": Entry("The message, which names the system.", _RETRIED),
    "UnclearState": Entry(
        "The offsets, the topic's id and the table in the message; `lakehouse ledger TOPIC`.",
        "Determine what happened to the topic or the table. Restore the records, or continue with `lakehouse resume "
        "TOPIC`, "
        "which records the gap. Nothing is published before.",
    ),
    "UnexpectedError": Entry(
        "The class of the original error in the message, and the stack trace in the log.",
        "Retry. If it fails again, reproduce it with a copy of the topic without sensitive values.",
    ),
    "UnknownResponse": Entry(
        "The version of Snowflake's connector, and the command in the message.",
        "Report it with the form of the response. Nothing was changed.",
    ),
    "Unreachable": Entry(
        "The address in the message: the system's own state, the network, the login; `lakehouse status`.",
        f"{_RETRIED} Topics continue after the records that they have published.",
    ),
    "Yielded": Entry(
        "`lakehouse status`, and which command works on the table.",
        "Wait: the topic continues when the command ends, and a minute after it was killed.",
    ),
}
"""The entries of error classes."""

ALERTS: Mapping[str, Entry] = {
    "LakehouseStageStale": Entry(
        "`lakehouse status`, which names the cause; the check `streaming` and the last run of the asset.",
        "Resolve the named cause (see its error class below). If there is none, the topic gets more records than are "
        "ingested: see [performance](performance.md).",
    ),
    "LakehouseMeasurementFailed": Entry(
        "Whether the process `lakehouse metrics` runs and is scraped, and its output.",
        "Start it, or correct the system that it names. If that is Kafka, nothing is ingested either. Otherwise "
        "ingestion is not affected, but it is not observed.",
    ),
    "LakehouseTopicFailing": Entry(
        "The label `error` of `lakehouse_failures_total`, and the last error of the topic in the stream's log.",
        "See the error class below. The stream retries by itself, so no restart is needed.",
    ),
    "LakehouseStreamDown": Entry(
        "Whether the process runs, the end of its log, and `up` of its target in Prometheus, which is absent if the "
        "target was removed.",
        "Start the stream again. It continues after the published rows, and loses or repeats none. If it was stopped "
        "on purpose, silence the alert for a day.",
    ),
    "LakehouseStreamStuck": Entry(
        "`/healthz` of the stream, `lakehouse_spark_operations`, and Spark's own UI and log.",
        "End the process and start it again. It continues after the published rows, and loses or repeats none.",
    ),
    "LakehousePublicationFailing": Entry(
        "The label `error` of `lakehouse_publication_failures_total`, and the reader's state in `lakehouse status`.",
        "Correct the reader's login or rights. The table itself is complete, and the reader catches up.",
    ),
    "LakehouseCheckFailed": Entry(
        "`lakehouse check TOPIC`, and the sample of rows on the asset's page in Dagster. If the check quarantines, "
        "`lakehouse dead-letters TOPIC`: the rows are there, so that `lakehouse check` of the table passes.",
        "Correct the producer or the check. Rows of a blocking check are not published, those of a warning are; "
        "quarantined ones are published by `lakehouse redrive TOPIC`.",
    ),
    "LakehouseDeadLetters": Entry(
        "`lakehouse_new_dead_letters_total` by reason, and `lakehouse dead-letters TOPIC`.",
        "Correct the cause ([rejected data](rejected-data.md)), then `lakehouse redrive TOPIC`.",
    ),
    "LakehouseMetadataLarge": Entry(
        "`lakehouse_table_snapshots`, and whether the nightly maintenance runs.",
        "`lakehouse maintain TOPIC`, or lower `retention.snapshots`.",
    ),
}
"""The entries of alert rules."""
