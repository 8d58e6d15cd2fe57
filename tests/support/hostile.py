"""Texts that end quotes, escape them, or read as SQL."""

HOSTILE = [
    "plain", "a b", "a.b", "a`b", 'a"b', "a'b", "''", '""', "``", "\\", "\\'", "'\\", 'x"; DROP TABLE t; --',
    "x'; DROP TABLE t; --", "x`; DROP TABLE t; --", "line\nbreak", "/* c */", "%_\\_", "\\u0041", "ü🦆", "$$", "?",
]  # fmt: skip
