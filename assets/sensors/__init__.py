"""Sensors that report changes to Dagster and send alerts and lineage to other systems."""
