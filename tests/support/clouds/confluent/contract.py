"""Confluent's OpenAPI documents.

specs/overlay.json lists, with a reason for each, the deviations of Confluent's Terraform provider and its recorded
responses from the documents. It is applied to the documents first; every other deviation is a violation.
"""

import functools
import json
from collections.abc import Mapping
from pathlib import Path

from tests.support.clouds.openapi import Document, Operation

SPECS = Path(__file__).with_name("specs")

DOCUMENTS = {
    "/org/": "org-v2",
    "/cmk/": "cmk-v2",
    "/srcm/": "srcm-v3",
    "/iam/v2/service-accounts": "iam-v2",
    "/iam/v2/api-keys": "apikeys-v2",
    "/iam/v2/role-bindings": "mds-v2",
    "/connect/": "connect-v1",
    "/pim/": "provider-integration-v1",
    "/fcpm/": "flink-v2",
    "/sql/": "flink-gateway-v1",
    "/tableflow/": "tableflow-v1",
    "/kafka/": "kafkarest-v3",
    "/subjects": "schema-registry-v1",
}
"""Names of documents by path prefix."""


@functools.cache
def document(name: str) -> Document:
    """Return a document, which is read once."""
    exceptions = json.loads((SPECS / "overlay.json").read_text())["exceptions"]
    text = (SPECS / f"{name}.yaml").read_text()
    return Document(text, [exception for exception in exceptions if exception["spec"] == name])


def find(method: str, path: str, query: Mapping[str, str]) -> Operation | None:
    """Return the operation of a request, or None if no document has it."""
    name = next((name for prefix, name in DOCUMENTS.items() if path.startswith(prefix)), None)
    return Operation.of(document(name), method, path, query) if name else None
