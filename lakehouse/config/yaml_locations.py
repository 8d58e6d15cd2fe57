"""Locations in a YAML file."""

from collections.abc import Iterator

import yaml

Location = tuple[str | int, ...]
"""The path from the root to a value: mapping keys and sequence indexes."""

_TYPES = {
    "tag:yaml.org,2002:bool": "true or false",
    "tag:yaml.org,2002:int": "a number",
    "tag:yaml.org,2002:float": "a number",
    "tag:yaml.org,2002:null": "empty",
}
"""The types of YAML that a name may have by accident, by tag."""


def dotted(location: Location) -> str:
    """Return a location in dotted notation, such as `topics.orders.key`."""
    return ".".join(str(part) for part in location) or "(file)"


def line_of(node: yaml.Node | None, location: Location) -> int:
    """Return the line (from 1) of the deepest part of a location that exists in the file."""
    line = node.start_mark.line + 1 if node else 1
    for part in location:
        if isinstance(node, yaml.MappingNode):
            entry = next(((k, v) for k, v in node.value if k.value == str(part)), None)
            if not entry:
                return line
            line, node = entry[0].start_mark.line + 1, entry[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
    return line


def key_faults(node: yaml.Node | None, location: Location = ()) -> Iterator[tuple[Location, str]]:
    """Yield the location and an error message of each key that would be lost, or would not be text.

    PyYAML silently keeps the last of two equal keys, which would drop a topic, and reads keys such as `on` or `7` as
    values of other types.
    """
    if not isinstance(node, yaml.MappingNode):
        return
    keys: set[str] = set()
    for key, value in node.value:
        at = (*location, key.value)
        if key.value in keys:
            yield at, f"the key is duplicated in line {key.start_mark.line + 1}. Remove one of them"
        if key.tag in _TYPES:
            yield at, f"YAML reads this key as {_TYPES[key.tag]}. Write it in quotes"
        keys.add(key.value)
        yield from key_faults(value, at)
