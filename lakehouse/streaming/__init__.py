"""Continuous ingestion of many topics, and publication of their tables to the readers. No Dagster."""
