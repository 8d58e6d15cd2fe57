"""Decoders of messages, one module per format."""
