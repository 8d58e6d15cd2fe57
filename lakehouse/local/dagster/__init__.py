"""The servers of Dagster, and the login of its UI."""
