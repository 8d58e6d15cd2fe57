"""Continuous ingestion: which topic's batch is next, and the readers that follow. No Dagster."""
