"""The resources of a deployment in Confluent Cloud."""
