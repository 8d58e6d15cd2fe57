"""The compiled decoder (`native/`): one pass from the log to Parquet files, in tasks of Spark."""
