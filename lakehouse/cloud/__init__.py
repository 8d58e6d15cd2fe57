"""The cloud set-up: what a deployment creates at AWS, Confluent and Snowflake."""
