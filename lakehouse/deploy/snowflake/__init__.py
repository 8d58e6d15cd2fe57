"""The resources of a deployment in Snowflake."""
