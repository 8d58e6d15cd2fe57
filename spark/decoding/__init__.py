"""Decoding of messages to rows or to the reason why they are dead letters, for all formats."""
