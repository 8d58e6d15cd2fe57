"""A deployment's objects in one Snowflake account."""
