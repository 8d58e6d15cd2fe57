"""The client of Snowflake and its statements."""
