"""Ingestion of one batch from a topic to a published snapshot; replay, reconciliation and maintenance. No Dagster."""
