"""A metadata column."""

from lakehouse.core.tables.metadata_columns import MetadataColumn

SIZE = MetadataColumn("size", "Bytes of the message value", "int", "octet_length(value)")
