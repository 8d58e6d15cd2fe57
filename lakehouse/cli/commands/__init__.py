"""The commands of `lakehouse`. Each calls the same functions as the Dagster assets."""
