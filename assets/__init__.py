"""Factories: a declared topic in, Dagster assets and checks out."""
