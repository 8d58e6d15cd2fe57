"""Schemas of a topic's records, and decisions about their changes."""
