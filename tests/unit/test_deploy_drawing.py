"""Drawings of a deployment: all resources, the necessary dependencies, and marks for what is planned."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from lakehouse.deploy import planner
from lakehouse.deploy.drawing import dot, mermaid
from lakehouse.deploy.resource import Resource


@dataclass(frozen=True, repr=False)
class Named(Resource[str]):
    """A resource that exists if its address is in a set."""

    address: str
    label: str
    existing: set[str]
    after: tuple[Resource[str], ...] = ()

    def read(self, outputs):
        return self.address if self.address in self.existing else None

    def create(self, outputs):
        self.existing.add(self.address)
        return self.address

    def delete(self, outputs, current):
        self.existing.discard(self.address)


@pytest.fixture
def resources():
    existing: set[str] = set()
    bucket = Named("aws/bucket", "S3 bucket 'b'", existing)
    cluster = Named("confluent/cluster", 'cluster "c"', existing, (bucket,))
    role = Named("aws/role", "role 'r'", existing, (bucket, cluster))
    return [bucket, cluster, role]


def nodes(drawing):
    return dict(re.findall(r'^ +(n\d+)(?:\[| \[label=)"((?:[^"\\]|\\.)*)"', drawing, re.MULTILINE))


def edges(drawing):
    return re.findall(r"(n\d+) -{1,2}> (n\d+)", drawing)


@pytest.mark.parametrize("draw", [mermaid, dot])
def test_drawing_before_and_after_create_marks_what_is_missing(resources, draw):
    before = draw(list(planner.plan(resources)))
    assert all("(create)" in label for label in nodes(before).values())

    planner.apply(resources, lambda change: None)

    after = draw(list(planner.plan(resources)))
    assert len(nodes(after)) == 3 and "(create)" not in after
    assert edges(before) == edges(after) == [("n0", "n1"), ("n1", "n2")], "n0 → n2 follows from the others"


def test_mermaid_groups_by_cloud_and_escapes_quotes(resources):
    drawing = mermaid(list(planner.plan(resources)))
    assert drawing.startswith("flowchart LR\n")
    aws, confluent = re.findall(r"subgraph (\w+)\n(.*?)\n  end", drawing, re.DOTALL)
    assert aws[0] == "aws" and re.findall(r"n\d", aws[1]) == ["n0", "n2"]
    assert confluent[0] == "confluent" and "cluster #quot;c#quot;<br>(create)" in confluent[1]
    assert "classDef create fill:" in drawing


def test_dot_groups_by_cloud_and_escapes_quotes(resources):
    drawing = dot(list(planner.plan(resources)))
    assert drawing.startswith("digraph deployment {") and drawing.endswith("}")
    assert r'n1 [label="cluster \"c\"\n(create)", fillcolor=' in drawing
    assert drawing.count("subgraph cluster_") == 2
