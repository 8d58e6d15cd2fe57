"""PySpark only: DataFrame in, DataFrame out. Nothing here knows of Dagster."""
