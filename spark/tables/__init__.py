"""Writes, merges, checks, counts and maintenance of Iceberg tables."""
