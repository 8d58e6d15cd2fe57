"""The cloud set-up: resources in AWS, Confluent Cloud and Snowflake, and their credentials."""
