"""Clients of Kafka."""
