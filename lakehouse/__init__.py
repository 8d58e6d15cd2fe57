"""Kafka topics as audited Apache Iceberg tables."""
