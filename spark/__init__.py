"""Data work in PySpark: DataFrame in, DataFrame out. No Dagster."""
