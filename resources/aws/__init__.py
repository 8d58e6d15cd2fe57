"""Clients of AWS: Glue, Athena, Secrets Manager, and roles."""
