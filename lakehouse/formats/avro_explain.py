"""Why a message is no record of its Avro schema, or cannot be read as one of another: field, rule and byte.

It reads bytes as the Avro 1.12 specification has them (Binary Encoding), with the same rules as `schemas` of
avro_resolution gives Spark. No message contains a value.
"""

from __future__ import annotations

from lakehouse.formats.avro_resolution import described, fault, read_by, target
from lakehouse.formats.avro_types import Field, Type

INT_BYTES, LONG_BYTES = 5, 10
"""The most bytes of a number (Avro specification, Primitive Types; Protocol Buffers, variable-length zig-zag)."""

MOST_MILLIS = (2**63 - 1) // 1_000
"""Milliseconds that 64 bits hold as microseconds, of which Spark's moments are made."""

MOST_VALUES = 100_000
"""Values of a message that are read: a batch may have very many messages that do not decode."""


def explain(data: bytes, start: int, wrote: Type, reads: Type) -> str | None:
    """The first reason why a message is no row; None where nothing is found.

    Args:
        data: the message with its frame.
        start: where its body begins.
        wrote: the type that it was written with.
        reads: the type of the columns.

    Returns:
        The field as a path, with `[n]` for the nth item of an array or entry of a map, the rule, and the byte of the
        message, which begins at 0.
    """
    walk = _Walk(data, start)
    try:
        walk.place(wrote, reads, "")
        if walk.at < len(data):
            raise _Fault("", "bytes follow the record", walk.at)
    except _Fault as found:
        path, rule, at = found.args
        field = f"'{path.lstrip('.')}'" if path else "the record"
        return f"{field}: {rule} (byte {at})"
    return None


class _Fault(Exception):
    """A path, the rule that is broken there, and the byte."""


class _Walk:
    """Reads one message from its start to its end."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at
        self.left = MOST_VALUES
        # An array may hold very many records of one type.
        self.pairs: dict[tuple[int, int], tuple[str | None, dict[str, Field]]] = {}

    def pair(self, wrote: Type, reads: Type) -> tuple[str | None, dict[str, Field]]:
        """What is wrong with two branches, and of records what reads each field."""
        known = id(wrote), id(reads)
        if known not in self.pairs:
            self.pairs[known] = fault(wrote, reads), read_by(wrote, reads)
        return self.pairs[known]

    def place(self, wrote: Type, reads: Type | None, path: str) -> None:
        """Read a value, which is skipped where nothing reads it."""
        start, branch = self.at, wrote
        self.left -= 1
        if not self.left:
            raise _Fault("", f"what is wrong is behind its first {MOST_VALUES:,} values", start)
        if wrote.kind == "union":
            index = self.number(path, INT_BYTES)
            if not 0 <= index < len(wrote.inner):
                raise _Fault(path, f"a union of {len(wrote.inner)} branches has none of the number written", start)
            branch = wrote.inner[index]
        to = reads
        if reads is not None and branch.kind == "null":
            if not reads.nullable:
                raise _Fault(path, "null, which the schema that reads it does not allow", start)
        elif reads is not None:
            to = target(wrote, branch, reads)
            if to is None:
                raise _Fault(path, f"the schema that reads it has no branch {described(branch)}", start)
            if rule := self.pair(branch, to)[0]:
                raise _Fault(path, rule, start)
        self.value(branch, to, path)

    def value(self, wrote: Type, reads: Type | None, path: str) -> None:
        start = self.at
        match wrote.kind:
            case "record":
                readers = self.pair(wrote, reads)[1] if reads else {}
                for field in wrote.fields:
                    here = readers.get(field.name)
                    self.place(field.type, here.type if here else None, f"{path}.{here.name if here else field.name}")
            case "array" | "map":
                self.blocks(wrote, reads, path)
            case "boolean":
                self.take(1, path)
            case "float":
                self.take(4, path)
            case "double":
                self.take(8, path)
            case "int" | "long":
                number = self.number(path, INT_BYTES if wrote.kind == "int" else LONG_BYTES)
                is_millis = reads is not None and (wrote.logical or "").endswith("timestamp-millis")
                if is_millis and abs(number) > MOST_MILLIS:
                    raise _Fault(path, "the moment is beyond what microseconds in 64 bits hold", start)
            case "enum":
                index = self.number(path, INT_BYTES)
                if not 0 <= index < len(wrote.symbols):
                    raise _Fault(path, f"an enum of {len(wrote.symbols)} symbols has none of the number written", start)
                is_strict = reads is not None and reads.kind == "enum" and reads.default is None
                if reads and is_strict and wrote.symbols[index] not in reads.symbols:
                    raise _Fault(path, "the enum of the schema that reads it lacks the symbol", start)
            case "bytes" | "string":
                self.content(self.sized(path), reads, path, start)
            case "fixed":
                self.content(self.take(wrote.size, path), reads, path, start)

    def blocks(self, wrote: Type, reads: Type | None, path: str) -> None:
        """Items of an array or entries of a map, which come in blocks."""
        first, inner = 0, reads and reads.inner[0]
        while count := self.number(path, LONG_BYTES):
            if count < 0:
                # The block's size in bytes follows, for those who skip it.
                count = -count
                self.number(path, LONG_BYTES)
            for index in range(first, first + count):
                start, here = self.at, f"{path}[{index}]"
                if wrote.kind == "map":
                    self.content(self.sized(here), inner and Type("string"), here, start, "the key")
                self.place(wrote.inner[0], inner, here)
                if self.at == start:
                    # Items without bytes are all alike, and a few bytes can announce any number of them.
                    break
            first += count

    def content(self, found: bytes, reads: Type | None, path: str, start: int, what: str = "text") -> None:
        """Check bytes against the type that they become."""
        if reads is None:
            return
        if reads.logical == "decimal":
            if not found:
                raise _Fault(path, "a decimal has no bytes", start)
            if abs(int.from_bytes(found, "big", signed=True)) >= 10**reads.precision:
                raise _Fault(path, f"a decimal has more than {reads.precision} digits", start)
        if reads.kind == "string":
            try:
                found.decode()
            except UnicodeDecodeError as error:
                # What does not decode ends where this began to be read, less what is behind the fault.
                raise _Fault(path, f"{what} is not UTF-8", self.at - len(found) + error.start) from None

    def sized(self, path: str) -> bytes:
        """Bytes behind their number."""
        start, size = self.at, self.number(path, LONG_BYTES)
        if size < 0:
            raise _Fault(path, "a length is negative", start)
        return self.take(size, path)

    def number(self, path: str, most: int) -> int:
        """A zig-zag number of variable length."""
        start, found = self.at, 0
        for shift in range(0, 7 * most, 7):
            byte = self.take(1, path)[0]
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                found &= (1 << (32 if most == INT_BYTES else 64)) - 1
                return (found >> 1) ^ -(found & 1)
        raise _Fault(path, f"a number has more than {most} bytes", start)

    def take(self, size: int, path: str) -> bytes:
        """The next bytes."""
        if self.at + size > len(self.data):
            raise _Fault(path, "the value is cut short", self.at)
        self.at += size
        return self.data[self.at - size : self.at]
