"""Names stored in tables (properties, snapshots, branches, tags and comments) and in bookmarks.

Tables outlive releases, and other programs read them. A name that is stored anywhere is therefore declared here and
nowhere else, and is never given another meaning. docs/reference/table-protocol.md is generated from NAMES.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Place = Literal[
    "snapshot summary",
    "table property",
    "tag",
    "branch",
    "table name",
    "column comment",
    "namespace property",
    "Glue parameter",
    "Kafka topic",
    "message header",
]

OWN = "lakehouse."
"""Prefix of the names of the project's properties."""

MAX_PROPERTY = 400_000
"""Maximum characters of a table property. Glue accepts 512,000 (AWS Glue API, Table: ParametersMapValue)."""

TOKEN = "lakehouse.batch"  # noqa: S105 (a property's name)
DECISION = "lakehouse.decision"
REPLAY = "lakehouse.replay"
PART = "lakehouse.part"
PARTS = "lakehouse.parts"
DECODER = "lakehouse.decoder"

COUNTS = "lakehouse.counts"
REPLAYS = "lakehouse.replays"
SCHEMAS = "lakehouse.schemas"
RESERVATION = "lakehouse.reservation"
PREVIOUS_NAMES = "lakehouse.former-names"
SETTINGS = "lakehouse.settings"
HEADER_IDS = "lakehouse.header-ids"
RECREATED = "lakehouse.recreated"
SUCCESSOR = "lakehouse.successor"
OLD_SUCCESSOR = "lakehouse.continued-in"
FIRST_TABLE = "lakehouse.first-table"
IDENTITY = "lakehouse.identity"
MOVED = "lakehouse.moved"
NAMESPACE_IDENTITY = "lakehouse.namespace-identity"
GLUE_LOCATION = "lakehouse.metadata_location"

OFFSETS_TAG = "lakehouse-offsets"
REPLAY_TAG = "lakehouse-replay"
STAGING_PREFIX = "ingest_"
DRY_RUN_PREFIX = "dry_run_"
BRANCH_AGE, BRANCH_DAYS = "max-ref-age-ms", 36_500
"""The age limit of a branch (Iceberg table specification, Snapshot references), and its value, which none reaches."""

DEAD_LETTERS = "__dead_letters"
JSON_TEXT = "JSON text"
UNION_BRANCH = "Avro union branch "

PAUSE_PREFIX = "pause."
BOOKMARKS = "lakehouse.bookmarks"
ENTRY = "lakehouse.entry"
LETTER_IDENTITY = "lakehouse.table-identity"


@dataclass(frozen=True)
class StoredName:
    """A name, or the beginning or end of names, and the modules that use it."""

    name: str
    place: Place
    meaning: str
    writers: tuple[str, ...]
    """The modules that store it; none if only earlier releases did."""
    readers: tuple[str, ...] = ()
    """The modules that only read it."""


NAMES: Sequence[StoredName] = (
    StoredName(
        TOKEN,
        "snapshot summary",
        "A batch as JSON: topic, cluster and topic id, and the offsets of its records. The newest one is the "
        "table's position",
        writers=("lakehouse/pipeline/batches/batch_plan.py", "lakehouse/pipeline/batches/offsets.py"),
        readers=("resources/iceberg/snapshots.py",),
    ),
    StoredName(
        DECISION,
        "snapshot summary",
        "A position that an operator set: JSON with `reason`, `by` and `at`, beside the token of that position",
        writers=("lakehouse/pipeline/batches/offsets.py",),
        readers=("lakehouse/pipeline/ledger/ledger_entries.py",),
    ),
    StoredName(
        REPLAY,
        "snapshot summary",
        "A redrive or replay: JSON with what it read. Such a snapshot has no token",
        writers=("lakehouse/pipeline/rewriting.py",),
        readers=("lakehouse/pipeline/ledger/ledger_entries.py", "resources/iceberg/commits.py"),
    ),
    StoredName(
        PART,
        "snapshot summary",
        "A commit that the next one completes: an upsert deletes, and then appends; the files of the compiled decoder "
        "come before the rows of the other records",
        writers=(
            "lakehouse/pipeline/engine_values.py",
            "spark/tables/commits.py",
        ),
        readers=(
            "lakehouse/pipeline/commits/audit.py",
            "lakehouse/pipeline/ledger/ledger_entries.py",
            "resources/iceberg/snapshots.py",
        ),
    ),
    StoredName(
        PARTS,
        "snapshot summary",
        "The number of commits that this one completes, itself included",
        writers=("lakehouse/pipeline/engine_values.py",),
        readers=("lakehouse/pipeline/commits/audit.py", "lakehouse/pipeline/ingestion.py"),
    ),
    StoredName(
        DECODER,
        "snapshot summary",
        "`compiled` if the compiled decoder read the batch, otherwise the reason why the reference decoder read it",
        writers=("lakehouse/pipeline/batches/batch_plan.py",),
        readers=("lakehouse/pipeline/ingestion.py", "resources/iceberg/snapshots.py"),
    ),
    StoredName(
        COUNTS,
        "table property",
        "The outcome counts of each batch, as JSON by snapshot id, oldest first",
        writers=("resources/iceberg/catalog.py",),
        readers=("lakehouse/pipeline/ledger/ledger_entries.py", "resources/iceberg/snapshots.py"),
    ),
    StoredName(
        REPLAYS,
        "table property",
        "The number of replays, of batches that are the first after a rollback, and of batches that end before the "
        "newest one ever published. After each, rows behind the position of a derived topic may be added, or may "
        "have been",
        writers=("resources/iceberg/commits.py",),
        readers=("resources/iceberg/bookmarked_table.py",),
    ),
    StoredName(
        RESERVATION,
        "table property",
        "A command that waits to publish: JSON with `holder`, `command` and `until_ms`, after which it has no effect. "
        "The command renews it, and removes it when it ends. Ingestion and maintenance begin nothing until then",
        writers=("resources/iceberg/reservation.py",),
    ),
    StoredName(
        SCHEMAS,
        "table property",
        "Fingerprints of the schemas that decoded the rows, as JSON by schema id",
        writers=("lakehouse/pipeline/schemas/schema_fingerprints.py",),
    ),
    StoredName(
        PREVIOUS_NAMES,
        "table property",
        "Names that columns had before the table was created: JSON, lists by dotted path",
        writers=("resources/iceberg/catalog.py",),
        readers=("lakehouse/config/sensitive.py",),
    ),
    StoredName(
        HEADER_IDS,
        "table property",
        "`true` if records of the topic had schema ids in headers. Without it, a batch is first written without them",
        writers=("lakehouse/pipeline/schemas/header_ids.py",),
    ),
    StoredName(
        SETTINGS,
        "table property",
        "The settings with which the rows were made, as JSON: `entry`, `mode`, `key`, `key_format`, `record` and "
        "`naming` of the entry in lakehouse.yaml. The declared ones are compared with them",
        writers=("lakehouse/pipeline/schemas/recorded_settings.py",),
    ),
    StoredName(
        RECREATED,
        "table property",
        "The table has rows of an earlier topic of this name, whose offsets overlap: cluster and topic id of the "
        "last such topic",
        writers=("lakehouse/pipeline/batches/offsets.py",),
        readers=(
            "lakehouse/pipeline/commits/column_checks.py",
            "lakehouse/pipeline/rewriting.py",
            "resources/iceberg/bookmarked_table.py",
        ),
    ),
    StoredName(
        SUCCESSOR,
        "table property",
        "Name of the table that continues this one",
        writers=("lakehouse/pipeline/batches/offsets.py",),
        readers=(
            "resources/iceberg/bookmarked_table.py",
            "resources/iceberg/catalog.py",
            "resources/iceberg/table_chain.py",
        ),
    ),
    StoredName(
        OLD_SUCCESSOR,
        "table property",
        "The same of earlier releases, in which the next table had dead letters of its own. Such tables are refused",
        writers=(),
        readers=("resources/iceberg/table_chain.py",),
    ),
    StoredName(
        FIRST_TABLE,
        "table property",
        "Name of the first of the tables that this one continues",
        writers=("resources/iceberg/catalog.py",),
    ),
    StoredName(
        IDENTITY,
        "table property",
        "The UUID of the first of the tables that continue each other. Bookmarks have it, which distinguishes tables "
        "of different environments and projects on one Kafka cluster",
        writers=("resources/iceberg/catalog.py", "resources/iceberg/commits.py"),
        readers=("resources/iceberg/bookmarked_table.py",),
    ),
    StoredName(
        MOVED,
        "table property",
        "Of a marker in place of a table that was moved to another catalog: JSON with its UUID and last metadata file, "
        "both environments, the address of the new catalog, the time and the user",
        writers=("resources/iceberg/moved_table.py",),
    ),
    StoredName(
        NAMESPACE_IDENTITY,
        "namespace property",
        "A UUID in the name of the consumer group of the streams that fill the namespace's tables",
        writers=("resources/iceberg/catalog.py", "resources/iceberg/namespace_identity.py"),
    ),
    StoredName(
        GLUE_LOCATION,
        "Glue parameter",
        "The metadata file that this project registered. Other writers leave it unchanged, and change "
        "`metadata_location`",
        writers=("resources/aws/glue.py",),
    ),
    StoredName(
        OFFSETS_TAG,
        "tag",
        "The newest ingested snapshot: snapshot expiry never removes a tagged snapshot",
        writers=("resources/iceberg/commits.py",),
        readers=(
            "lakehouse/pipeline/batches/offsets.py",
            "lakehouse/pipeline/commits/staged_commit.py",
            "resources/iceberg/snapshots.py",
        ),
    ),
    StoredName(
        REPLAY_TAG,
        "tag",
        "The snapshot of the newest redrive or replay, until a batch follows it",
        writers=("resources/iceberg/commits.py",),
        readers=("lakehouse/pipeline/commits/staged_commit.py", "resources/iceberg/snapshots.py"),
    ),
    StoredName(
        STAGING_PREFIX,
        "branch",
        "Begins the names of branches that have a batch between its write and its publication",
        writers=("lakehouse/pipeline/commits/staged_commit.py",),
        readers=("resources/iceberg/catalog.py",),
    ),
    StoredName(
        DRY_RUN_PREFIX,
        "branch",
        "Begins the names of branches and tables of dry runs, which the second of their start follows",
        writers=("lakehouse/core/tables/naming.py",),
    ),
    StoredName(
        BRANCH_AGE,
        "branch",
        "Age limit of 36,500 days of a staging branch. One without it was created again by Spark or changed by "
        "another library, so its batch is not published",
        writers=("spark/tables/write.py",),
        readers=("lakehouse/pipeline/commits/staged_commit.py",),
    ),
    StoredName(
        DEAD_LETTERS,
        "table name",
        "Ends the name of the table of records that could not be decoded",
        writers=("lakehouse/core/tables/naming.py",),
        readers=("assets/topics/upkeep_assets.py", "lakehouse/config/model.py", "lakehouse/pipeline/maintenance.py"),
    ),
    StoredName(
        JSON_TEXT,
        "column comment",
        "Marks a column whose text is JSON, and names the place in it. Text and JSON text have the same type",
        writers=("lakehouse/formats/json/json_text.py",),
    ),
    StoredName(
        UNION_BRANCH,
        "column comment",
        "Begins the comment of a member of a union; the name of the branch follows",
        writers=("lakehouse/formats/avro/avro_format.py",),
        readers=("lakehouse/formats/evolution.py",),
    ),
    StoredName(
        PAUSE_PREFIX,
        "namespace property",
        "Begins the name of the pause of a topic, which the name of its first table ends: JSON with `reason`, `at` "
        "and `by`",
        writers=("resources/iceberg/pauses.py",),
    ),
    StoredName(
        BOOKMARKS,
        "Kafka topic",
        "The compacted topic of bookmarks: the positions up to which derived topics (`lakehouse.derived/<topic>`) and "
        "topics of dead letters (`lakehouse.dead_letters/<source topic>/<entry>/<topic>`) were produced, each with "
        "the identity of the table that it is of",
        writers=("resources/kafka/bookmark_topic.py",),
        readers=("lakehouse/config/model.py", "lakehouse/deploy/confluent/declared.py"),
    ),
    StoredName(
        ENTRY,
        "message header",
        "The entry of lakehouse.yaml that a dead letter in a topic is of: several entries may share the record's "
        "topic and this one",
        writers=("lakehouse/pipeline/dead_letters/letter_messages.py",),
        readers=("lakehouse/pipeline/dead_letters/dead_letter_topic.py",),
    ),
    StoredName(
        LETTER_IDENTITY,
        "message header",
        "The identity of the table that a dead letter in a topic is of",
        writers=("lakehouse/pipeline/dead_letters/letter_messages.py",),
        readers=("lakehouse/pipeline/dead_letters/dead_letter_topic.py",),
    ),
)
"""All stored names, by place."""
