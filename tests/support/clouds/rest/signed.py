"""A REST catalog for tests that requires requests signed with AWS Signature Version 4, as AWS Glue and S3 Tables do.

Specification: AWS, IAM user guide, "Create a signed AWS API request". botocore's signer computes the signature of the
request as it arrived, and the hash of the body is computed here.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.support.clouds.rest.server import Polaris, error, header
from tests.support.servers.proxy import Request, Response

AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/]+)/(?P<date>\d{8})/(?P<region>[^/]+)/(?P<name>[^/]+)/aws4_request, ?"
    r"SignedHeaders=(?P<headers>[^,]+), ?Signature=(?P<signature>[0-9a-f]{64})"
)


def signature_fault(request: Request, keys: Credentials, name: str, region: str) -> str:
    """Return why a request is not signed with keys for the service of a name in a region; '' if it is."""
    scope = AUTHORIZATION.fullmatch(header(request, "authorization"))
    if scope is None:
        return f"the request is not signed: {header(request, 'authorization')!r}"
    date = header(request, "x-amz-date")
    declared = (scope["key"], scope["date"], scope["region"], scope["name"])
    if declared != (keys.access_key, date[:8], region, name):
        return f"the scope is {declared}"
    names = scope["headers"].split(";")
    present = {key.lower() for key, _ in request.headers}
    unsigned = {key for key in present if key == "host" or key.startswith("x-amz-")} - {*names}
    if unsigned:
        return f"unsigned headers: {', '.join(sorted(unsigned))}"
    headers = {key: header(request, key) for key in names}
    signed = AWSRequest(request.method, f"http://{headers['host']}{request.path}", headers)
    signed.context["timestamp"] = date
    signer = SigV4Auth(keys, name, region)
    *lines, _ = signer.canonical_request(signed).split("\n")
    canonical = "\n".join([*lines, hashlib.sha256(request.body).hexdigest()])
    expected = signer.signature(signer.string_to_sign(signed, canonical), signed)
    return "" if expected == scope["signature"] else f"the signature does not match:\n{canonical}"


class Signed(Polaris):
    """The catalog, which refuses requests that are not signed with its keys."""

    def __init__(self, target: str, database: Path, keys: Credentials, name: str, region: str):
        super().__init__(target, database)
        self._expected = keys, name, region
        self.refusals: list[str] = []
        """Why requests were refused."""
        self.calls: list[tuple[str, str]] = []
        """User agent and method of the other ones."""

    def forward(self, request: Request) -> Response:
        if fault := signature_fault(request, *self._expected):
            self.refusals.append(fault)
            return error(403, "ForbiddenException", "The request signature we calculated does not match")
        self.calls.append((header(request, "user-agent"), request.method))
        return self.respond(request)
