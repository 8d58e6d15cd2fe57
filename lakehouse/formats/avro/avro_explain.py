"""Reasons why a message does not decode with its Avro schema, or does not fit the columns: field, rule and byte.

Messages are decoded as the Avro 1.12 specification defines (Binary Encoding), with the rules that `schemas` of
avro_resolution applies in Spark. No reason contains a value.
"""

from __future__ import annotations

from lakehouse.formats.avro.avro_resolution import described, fault, read_by, target
from lakehouse.formats.avro.avro_types import VARIABLE_DECIMAL, ZONED_TIMESTAMP, RecordField, Type
from lakehouse.formats.avro.connect_types import is_zoned

INT_BYTES, LONG_BYTES = 5, 10
"""Maximum bytes of a number (Avro specification, Primitive Types; Protocol Buffers, variable-length zig-zag)."""

MAX_MILLIS = (2**63 - 1) // 1_000
"""Largest timestamp in milliseconds that fits Spark's 64 bits of microseconds."""

MAX_VALUES = 100_000
"""Maximum values that are read of a message, since a batch may have many messages that do not decode."""


class Explainer:
    """Explains messages that were written with one type and become rows of another."""

    def __init__(self, wrote: Type, reads: Type) -> None:
        self._wrote, self._reads = wrote, reads
        self._pairs = _Pairs()

    def __reduce__(self) -> tuple[type[Explainer], tuple[Type, Type]]:
        # The pairs are kept by the identity of types, which a copy in another process does not have.
        return Explainer, (self._wrote, self._reads)

    def explain(self, data: bytes, start: int) -> str | None:
        """Return the first reason why a message does not become a row; None if there is none.

        Args:
            data: The message with its frame.
            start: The index of the first byte of its body.

        Returns:
            The path of the field, with `[n]` for the nth item of an array or entry of a map, the rule, and the index of
            the byte in the message.
        """
        first = self._first(data, start)
        return str(first) if first else None

    def fault(self, data: bytes, start: int) -> str | None:
        """Return the result of `explain`; None also if the message has more values than are read."""
        first = self._first(data, start)
        return None if first is None or isinstance(first, _Unread) else str(first)

    def _first(self, data: bytes, start: int) -> _Fault | None:
        walk = _Walk(data, start, self._pairs)
        try:
            walk.place(self._wrote, self._reads, "")
            if walk.at < len(data):
                raise _Fault("", "bytes follow the record", walk.at)
        except _Fault as fault_:
            return fault_
        return None


class _Pairs:
    """Types of the reader for those of the writer. They are the same for all messages, of which there may be many."""

    def __init__(self) -> None:
        self._of_types: dict[tuple[int, int], tuple[str | None, dict[str, RecordField]]] = {}
        self._targets: dict[tuple[int, int, int], Type | None] = {}

    def of(self, wrote: Type, reads: Type) -> tuple[str | None, dict[str, RecordField]]:
        """Return the reason why two branches do not match, or None, and the reader's fields by the writer's names."""
        key = id(wrote), id(reads)
        if key not in self._of_types:
            self._of_types[key] = fault(wrote, reads), read_by(wrote, reads)
        return self._of_types[key]

    def target(self, wrote: Type, branch: Type, reads: Type) -> Type | None:
        """Return the reader's branch for values of a writer's branch; None if there is none."""
        key = id(wrote), id(branch), id(reads)
        if key not in self._targets:
            self._targets[key] = target(wrote, branch, reads)
        return self._targets[key]


class _Fault(Exception):
    """A path, the rule that the value there breaks, and the index of the byte."""

    def __str__(self) -> str:
        path, rule, at = self.args
        field = f"'{path.lstrip('.')}'" if path else "the record"
        return f"{field}: {rule} (byte {at})"


class _Unread(_Fault):
    """More values than are read."""


class _Walk:
    """A decoder of one message, from start to end."""

    def __init__(self, data: bytes, at: int, pairs: _Pairs) -> None:
        self.data = data
        self.at = at
        self.pairs = pairs
        self.remaining = MAX_VALUES

    def place(self, wrote: Type, reads: Type | None, path: str) -> None:
        """Read a value; without a reader it is skipped."""
        start, branch = self.at, wrote
        self.remaining -= 1
        if not self.remaining:
            raise _Unread("", f"the fault is after its first {MAX_VALUES:,} values", start)
        if wrote.kind == "union":
            index = self.number(path, INT_BYTES)
            if not 0 <= index < len(wrote.inner):
                raise _Fault(path, f"the index is not one of the union's {len(wrote.inner)} branches", start)
            branch = wrote.inner[index]
        to = reads
        if reads is not None and branch.kind == "null":
            if not reads.nullable:
                raise _Fault(path, "the value is null, and the reader schema does not allow null", start)
        elif reads is not None:
            to = self.pairs.target(wrote, branch, reads)
            if to is None:
                raise _Fault(path, f"the reader schema has no branch {described(branch)}", start)
            if rule := self.pairs.of(branch, to)[0]:
                raise _Fault(path, rule, start)
        self.value(branch, to, path)

    def value(self, wrote: Type, reads: Type | None, path: str) -> None:
        start = self.at
        match wrote.kind:
            case "record" if reads and reads.logical == VARIABLE_DECIMAL:
                self.variable_decimal(reads, path)
            case "record":
                readers = self.pairs.of(wrote, reads)[1] if reads else {}
                for field in wrote.fields:
                    reader = readers.get(field.name)
                    self.place(
                        field.type, reader.type if reader else None, f"{path}.{reader.name if reader else field.name}"
                    )
            case "array" | "map":
                self.blocks(wrote, reads, path)
            case "boolean":
                self.read(1, path)
            case "float":
                self.read(4, path)
            case "double":
                self.read(8, path)
            case "int" if reads:
                # Serializers write more than 32 bits without an error.
                if not -(2**31) <= self.number(path, LONG_BYTES) < 2**31:
                    raise _Fault(path, "the number does not fit the 32 bits of an int", start)
            case "int" | "long":
                number = self.number(path, INT_BYTES if wrote.kind == "int" else LONG_BYTES)
                is_millis = reads is not None and (wrote.logical or "").endswith("timestamp-millis")
                if is_millis and abs(number) > MAX_MILLIS:
                    raise _Fault(path, "the timestamp in microseconds does not fit 64 bits", start)
            case "enum":
                index = self.number(path, INT_BYTES)
                if not 0 <= index < len(wrote.symbols):
                    raise _Fault(path, f"the index is not one of the enum's {len(wrote.symbols)} symbols", start)
                if reads and reads.kind == "enum" and wrote.symbols[index] not in reads.symbols:
                    raise _Fault(path, "the enum of the reader schema does not have the symbol", start)
            case "bytes" | "string":
                self.content(self.sized(path), reads, path, start)
            case "fixed":
                self.content(self.read(wrote.size, path), reads, path, start)

    def blocks(self, wrote: Type, reads: Type | None, path: str) -> None:
        """Read the blocks of items of an array or of entries of a map."""
        first, inner = 0, reads and reads.inner[0]
        while count := self.number(path, LONG_BYTES):
            if count < 0:
                # A negative count is followed by the block's size in bytes.
                count = -count
                self.number(path, LONG_BYTES)
            for index in range(first, first + count):
                start, item_path = self.at, f"{path}[{index}]"
                if wrote.kind == "map":
                    self.content(self.sized(item_path), inner and Type("string"), item_path, start, "the key")
                self.place(wrote.inner[0], inner, item_path)
                if self.at == start:
                    # Items without bytes are all equal, and a small message can announce any number of them.
                    break
            first += count

    def content(self, value: bytes, reads: Type | None, path: str, start: int, what: str = "text") -> None:
        """Check the bytes of a value against the reader's type."""
        if reads is None:
            return
        if reads.logical == "decimal":
            if not value:
                raise _Fault(path, "a decimal has no bytes", start)
            if abs(int.from_bytes(value, "big", signed=True)) >= 10**reads.precision:
                raise _Fault(path, f"a decimal has more than {reads.precision} digits", start)
        if reads.kind == "string":
            try:
                text = value.decode()
            except UnicodeDecodeError as error:
                raise _Fault(path, f"{what} is not UTF-8", self.at - len(value) + error.start) from None
            if reads.logical == ZONED_TIMESTAMP and not is_zoned(text):
                raise _Fault(path, "a date-time as in RFC 3339 is expected, with at most microseconds", start)

    def variable_decimal(self, reads: Type, path: str) -> None:
        """Read a decimal with its own scale."""
        start, scale = self.at, self.number(f"{path}.scale", LONG_BYTES)
        value = self.sized(f"{path}.value")
        self.content(value, reads.fields[1].type, f"{path}.value", start)
        number = abs(int.from_bytes(value, "big", signed=True))
        digits = len(str(number))
        zeros = digits - len(str(number).rstrip("0"))
        if number and (scale - zeros > reads.scale or digits - scale > reads.precision - reads.scale):
            rule = f"the number is not a decimal of {reads.precision} digits, {reads.scale} of them after the point"
            raise _Fault(path, rule, start)

    def sized(self, path: str) -> bytes:
        """Read a length and as many bytes."""
        start, size = self.at, self.number(path, LONG_BYTES)
        if size < 0:
            raise _Fault(path, "a length is negative", start)
        return self.read(size, path)

    def number(self, path: str, size: int) -> int:
        """Read a zig-zag number of at most `size` bytes."""
        start, number = self.at, 0
        for shift in range(0, 7 * size, 7):
            byte = self.read(1, path)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                number &= (1 << (32 if size == INT_BYTES else 64)) - 1
                return (number >> 1) ^ -(number & 1)
        raise _Fault(path, f"a number has more than {size} bytes", start)

    def read(self, size: int, path: str) -> bytes:
        """Read the next bytes."""
        if self.at + size > len(self.data):
            raise _Fault(path, "the message ends within the value", self.at)
        self.at += size
        return self.data[self.at - size : self.at]
