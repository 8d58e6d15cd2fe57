"""The functions of `spark/` that are simulated."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import spark.decoding.control
import spark.decoding.decode
import spark.decoding.explain
import spark.records
import spark.tables.dead_letters
import spark.tables.lost_rows
import spark.tables.maintenance_procedures
import spark.tables.staged_checks
import spark.tables.write
from tests.simulation.engine import check_jobs, decoding_jobs, letter_jobs, maintenance_jobs, write_jobs
from tests.simulation.world import replaced

REPLACED: dict[Any, dict[str, Any]] = {
    spark.records: {"read_range": decoding_jobs.read_range, "is_readable": decoding_jobs.is_readable},
    spark.decoding.control: {"decode_controls": decoding_jobs.decode_controls},
    spark.decoding.decode: {
        "decode": decoding_jobs.decode,
        "refused": decoding_jobs.refused,
        "foreign_schema_ids": decoding_jobs.foreign_schema_ids,
    },
    spark.decoding.explain: {"first_faults": decoding_jobs.first_faults},
    spark.tables.staged_checks: {
        "run": check_jobs.run,
        "quarantine_result": decoding_jobs.quarantine_result,
        "validate": decoding_jobs.validate,
    },
    spark.tables.write: {
        "create_branch": write_jobs.create_branch,
        "nothing": write_jobs.nothing,
        "append": write_jobs.append,
        "dedup": write_jobs.dedup,
        "upsert": write_jobs.upsert,
    },
    spark.tables.lost_rows: {"require_none": write_jobs.require_none},
    spark.tables.dead_letters: {
        "of_batch": letter_jobs.of_batch,
        "decision": letter_jobs.decision,
        "discard": letter_jobs.discard,
        "append": letter_jobs.append_letters,
        "missing": letter_jobs.missing,
        "discard_earlier": letter_jobs.discard_earlier,
        "waiting": letter_jobs.waiting,
        "poisonous": letter_jobs.poisonous,
        "without": letter_jobs.without,
        "attempt": letter_jobs.attempt,
        "existing_rows": letter_jobs.existing_rows,
        "replaced": letter_jobs.replaced,
        "without_record": letter_jobs.without_record,
        "first_offsets": letter_jobs.first_offsets,
        "remaining": letter_jobs.remaining,
        "mark": letter_jobs.mark,
    },
    spark.tables.maintenance_procedures: {
        "compact": maintenance_jobs.compact,
        "compact_deletes": maintenance_jobs.compact_files,
        "compact_manifests": maintenance_jobs.compact_files,
        "expire": maintenance_jobs.expire,
        "remove_orphans": maintenance_jobs.remove_orphans,
        "delete_rows": maintenance_jobs.delete_rows,
    },
}
"""The functions that are simulated, by module; nothing outside of `spark/`."""


def simulated_engine() -> AbstractContextManager[None]:
    """Replace the jobs of `spark/`."""
    return replaced(REPLACED)
