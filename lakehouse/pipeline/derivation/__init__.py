"""Derivation: messages that are computed from the published table of another topic, each row or group of rows once."""
