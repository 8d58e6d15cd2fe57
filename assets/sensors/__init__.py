"""Sensors, and what they send to other systems."""
