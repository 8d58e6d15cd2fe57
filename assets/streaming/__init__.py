"""Continuous ingestion in Dagster."""
