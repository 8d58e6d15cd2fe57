"""The input of one batch: its offsets, its limits and the batches that were refused."""
