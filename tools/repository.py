"""The folder of the repository."""

from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
"""The folder with lakehouse.yaml, schemas/, docs/ and the tests."""
