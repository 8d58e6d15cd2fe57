"""Strict parsers of the statements that fakesnow lacks."""
