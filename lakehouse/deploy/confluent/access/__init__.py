"""Service accounts and their permissions in Confluent Cloud."""
