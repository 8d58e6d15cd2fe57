"""Schemas of messages as columns of tables, one format a module or a few; and how the columns of a table may change."""
