"""Where in a YAML file something stands."""

from __future__ import annotations

import yaml

Location = tuple[str | int, ...]
"""The keys and indexes that lead from the root to a place."""


def dotted(loc: Location) -> str:
    """A location as people write it: `topics.orders.key`."""
    return ".".join(str(part) for part in loc) or "(file)"


def line_of(node: yaml.Node | None, loc: Location) -> int:
    """The line (from 1) of the deepest part of `loc` that the file has."""
    line = node.start_mark.line + 1 if node else 1
    for part in loc:
        if isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in node.value if k.value == str(part)), None)
            if not found:
                return line
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
    return line


def duplicate_keys(node: yaml.Node | None, at: Location = ()) -> list[tuple[Location, str]]:
    """PyYAML keeps the last of two equal keys in silence, which would drop a topic."""
    faults: list[tuple[Location, str]] = []
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                faults.append(((*at, key.value), f"stands twice; again in line {key.start_mark.line + 1}. Remove one"))
            seen.add(key.value)
            faults += duplicate_keys(value, (*at, key.value))
    return faults
