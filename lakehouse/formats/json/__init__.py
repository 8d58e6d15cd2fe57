"""Formats `json_schema` and `json`."""
