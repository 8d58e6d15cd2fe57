"""Message indexes of the Protobuf wire format, which select one message of a file (Confluent, Wire format).

They follow the schema id: the position of the message among its siblings, for each level from the outermost in, as
zigzag varints after their count. The first message of the file is abbreviated to a single zero.

Clients number nested messages in two ways: some count the entries of maps, which the compiler declares as messages, and
those that parse the registered source do not (Confluent's ProtobufSchema.toMessageIndexes).
"""

from collections.abc import Iterator

from google.protobuf.descriptor import Descriptor

from lakehouse.core.errors import SchemaError


def own_indexes(message: Descriptor) -> frozenset[bytes]:
    """Return the indexes that select a message, one for each way to number it."""
    return frozenset(_index(message, counts_maps) for counts_maps in (True, False))


def other_indexes(message: Descriptor) -> frozenset[bytes]:
    """Return the indexes that select another message of the same file."""
    others = (other for other in _declared(message.file.message_types_by_name.values()) if other != message)
    return frozenset(index for other in others for index in own_indexes(other))


def require_distinct(message: Descriptor) -> None:
    """Require that no index selects a message in one way and another message in the other way.

    Raises:
        SchemaError: One does.
    """
    if own_indexes(message) & other_indexes(message):
        raise SchemaError(
            f"Clients number Protobuf message '{message.full_name}' in two ways, because a message around it declares "
            f"a map before other messages. Their records cannot be distinguished from those of another message. "
            f"Declare the maps below the nested messages, or '{message.name}' outside of other messages"
        )


def _index(message: Descriptor, counts_maps: bool) -> bytes:
    path: list[int] = []
    while (parent := message.containing_type) is not None:
        siblings = [one for one in parent.nested_types if counts_maps or not one.GetOptions().map_entry]
        path.insert(0, siblings.index(message))
        message = parent
    path.insert(0, list(message.file.message_types_by_name).index(message.name))
    return b"\x00" if path == [0] else b"".join(_varint(2 * n) for n in (len(path), *path))


def _declared(messages: list[Descriptor]) -> Iterator[Descriptor]:
    """Yield messages and the messages within them, without the entries of maps."""
    for message in messages:
        if not message.GetOptions().map_entry:
            yield message
            yield from _declared(message.nested_types)


def _varint(n: int) -> bytes:
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])
