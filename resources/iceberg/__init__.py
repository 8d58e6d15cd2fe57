"""Iceberg catalogs and the history of tables."""
