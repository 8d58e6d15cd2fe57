"""Kafka topics as audited Apache Iceberg tables."""

DISTRIBUTION = "lakehouse"
"""The name of the distribution that contains this package."""
