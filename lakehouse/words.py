"""Numbers in sentences."""


def counted(n: int, noun: str) -> str:
    """`1 record`, `1,000 records`."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
