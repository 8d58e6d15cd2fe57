"""Execution of parsed statements."""
