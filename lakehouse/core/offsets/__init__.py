"""Offsets, counts and lag of the records of batches."""
