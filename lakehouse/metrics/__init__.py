"""Metrics for Prometheus, and health for whatever restarts processes."""
