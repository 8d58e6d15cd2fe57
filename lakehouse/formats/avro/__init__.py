"""Format `avro`."""
