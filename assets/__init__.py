"""Factories of the Dagster definitions for the entries of lakehouse.yaml."""
