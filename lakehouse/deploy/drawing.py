"""Drawings of a deployment: its resources by cloud, their dependencies, and what is planned for each."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from lakehouse.deploy.planner import Action, Change

COLOURS: Mapping[Action, str] = {
    "create": "#a6e3a1",
    "update": "#f9e2af",
    "no-op": "#e6e9ef",
    "delete": "#f38ba8",
    "retain": "#e6e9ef",
    "absent": "#ffffff",
    "unknown": "#cba6f7",
}
"""Fill colours by action."""


def mermaid(changes: Sequence[Change]) -> str:
    """Return the drawing as a flowchart of Mermaid (https://mermaid.js.org/syntax/flowchart.html).

    Args:
        changes: The plan of all resources, dependencies first.
    """
    ids = _ids(changes)
    lines = ["flowchart LR"]
    for cloud, members in _by_cloud(changes):
        lines.append(f"  subgraph {cloud}")
        for change in members:
            label = _label(change).replace('"', "#quot;").replace("\n", "<br>")
            lines.append(f'    {ids[change.resource.address]}["{label}"]:::{_css_class(change.action)}')
        lines.append("  end")
    lines += [f"  {ids[dependency]} --> {ids[dependent]}" for dependency, dependent in _edges(changes)]
    drawn = dict.fromkeys(change.action for change in changes)
    lines += [f"  classDef {_css_class(action)} fill:{COLOURS[action]},stroke:#4c4f69,color:#000" for action in drawn]
    return "\n".join(lines)


def dot(changes: Sequence[Change]) -> str:
    """Return the drawing in the DOT language of Graphviz (https://graphviz.org/doc/info/lang.html).

    Args:
        changes: The plan of all resources, dependencies first.
    """
    ids = _ids(changes)
    lines = ["digraph deployment {", "  rankdir=LR;", '  node [shape=box, style="rounded,filled"];']
    for cloud, members in _by_cloud(changes):
        lines += [f"  subgraph cluster_{cloud} {{", f"    label={json.dumps(cloud)};"]
        for change in members:
            attributes = f"label={json.dumps(_label(change))}, fillcolor={json.dumps(COLOURS[change.action])}"
            lines.append(f"    {ids[change.resource.address]} [{attributes}];")
        lines.append("  }")
    lines += [f"  {ids[dependency]} -> {ids[dependent]};" for dependency, dependent in _edges(changes)]
    return "\n".join([*lines, "}"])


FORMATS: Mapping[str, Callable[[Sequence[Change]], str]] = {"mermaid": mermaid, "dot": dot}
"""Functions that draw, by the name of the format."""


def _ids(changes: Sequence[Change]) -> dict[str, str]:
    return {change.resource.address: f"n{number}" for number, change in enumerate(changes)}


def _by_cloud(changes: Sequence[Change]) -> Iterator[tuple[str, list[Change]]]:
    """Yield the changes of each cloud."""
    cloud_of = attrgetter("resource.cloud_name")
    for cloud, members in groupby(sorted(changes, key=cloud_of), cloud_of):
        yield cloud, list(members)


def _label(change: Change) -> str:
    action = "" if change.action == "no-op" else f"\n({change.action})"
    return f"{change.resource.label}{action}"


def _css_class(action: Action) -> str:
    return action.replace("-", "_")


def _edges(changes: Sequence[Change]) -> Iterator[tuple[str, str]]:
    """Yield the dependencies by address, without those that follow from others: `a → c` where `a → b → c`."""
    ancestors: dict[str, set[str]] = {}
    for change in changes:
        direct = list(dict.fromkeys(dependency.address for dependency in change.resource.depends_on))
        indirect = set[str]().union(*(ancestors[address] for address in direct))
        ancestors[change.resource.address] = indirect.union(direct)
        yield from ((address, change.resource.address) for address in direct if address not in indirect)
