"""lakehouse.yaml as validated, immutable models."""
