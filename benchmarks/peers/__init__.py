"""Contenders of against_peers.py, one per file: each continuously ingests one Kafka topic into an Iceberg table."""
