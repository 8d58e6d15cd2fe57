"""Assets of the topics of lakehouse.yaml, and their checks."""
