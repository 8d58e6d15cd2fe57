"""Settings of any Spark Connect server on which the correctness of tables rests, and the effect of others."""

from collections.abc import Mapping
from typing import NamedTuple

MAX_VALUE = 64 * 1024 * 1024
"""Maximum bytes of one value in an Avro record; Kafka's limit for a message is lower."""

# A message of five bytes may declare a billion items: Avro would allocate memory for them and crash the process.
AVRO_LIMITS = tuple(
    f"-Dorg.apache.avro.limits.{name}={limit}"
    for name, limit in {
        "collectionItems.maxLength": 1_000_000,
        "bytes.maxLength": MAX_VALUE,
        "string.maxLength": MAX_VALUE,
    }.items()
)
"""Options of every JVM that decodes Avro."""


class Required(NamedTuple):
    """A setting that the server needs."""

    value: str
    effect: str
    """The effect of another value."""


REQUIRED: Mapping[str, Required] = {
    "spark.sql.extensions": Required(
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "Spark does not know the branches of tables, so that no batch can be staged",
    ),
    "spark.sql.session.timeZone": Required("UTC", "checks and transforms would read times in another zone"),
    "spark.redaction.regex": Required(
        "(?i)secret|password|token|credential|access[.-]?key|keystore[.]key|jaas",
        "Spark's UI and event log would show secrets",
    ),
    # Executors are separate JVMs, except in the embedded server.
    "spark.executor.extraJavaOptions": Required(
        " ".join(AVRO_LIMITS), "a damaged Avro record could end an executor again and again"
    ),
}
"""Each value may have further parts, such as other extensions and options."""
