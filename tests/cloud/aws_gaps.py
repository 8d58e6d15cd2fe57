"""What AWS does and moto does not: a guard for `proxy.Proxy`, behind `aws_proxy.Strict`, that answers in moto's place.

| Call | AWS | moto |
| --- | --- | --- |
| s3 CreateBucket | gives the bucket its tags | passes over them |
| s3, with a bucket policy | denies what it denies, by its conditions | denies everything: it knows no Bool |
| athena GetWorkGroup | InvalidRequestException when there is none | an answer without a workgroup |
| athena UpdateWorkGroup | changes it | NotImplementedError |
| iam SimulatePrincipalPolicy | decides | NotImplementedError |

Sources: the API references of the five calls; Amazon S3, "Bucket policies". Bucket policies are kept here, and never
reach moto.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from xml.etree import ElementTree

import iam
from aws_proxy import Call, Strict
from moto.backends import get_backend
from proxy import Answer, Request

OBJECT_ACTIONS = {"GET": "s3:GetObject", "HEAD": "s3:GetObject", "PUT": "s3:PutObject", "DELETE": "s3:DeleteObject"}


@dataclass
class Gaps:
    """The guard. `rights` are the policies by which SimulatePrincipalPolicy decides; None leaves it to moto."""

    strict: Strict
    account: str
    secure: bool = True
    """Whether requests are said to have come through TLS: here they never do."""
    rights: list[iam.Policy] | None = None
    policies: dict[str, str] = field(default_factory=dict)

    def __call__(self, request: Request) -> Answer | None:
        """The answer, or None when moto is to give it."""
        if refusal := self.strict(request):
            return refusal
        call = Call.of(request)
        if call and call.action == "SimulatePrincipalPolicy" and self.rights is not None:
            return self._simulated(call.parameters)
        if request.target.startswith("AmazonAthena."):
            return self._athena(request)
        if not request.target and call is None:
            return self._s3(request)
        return None

    def _s3(self, request: Request) -> Answer | None:
        url = urlsplit(request.path)
        bucket, _, key = url.path.lstrip("/").partition("/")
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        if not key and "policy" in query:
            return self._policy(request, bucket)
        if self._denied(request.method, bucket, key):
            return _xml(403, "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>")
        if request.method == "PUT" and not key and not query and b"<Tags>" in request.body:
            return self._create_bucket(request, bucket)
        if request.method == "DELETE" and not key and not query:
            self.policies.pop(bucket, None)
        return None

    def _denied(self, method: str, bucket: str, key: str) -> bool:
        policy = self.policies.get(bucket)
        if policy is None:
            return False
        action = OBJECT_ACTIONS.get(method, "s3:DeleteObject") if key else "s3:ListBucket"
        arn = f"arn:aws:s3:::{bucket}" + (f"/{key}" if key else "")
        said = {"aws:SecureTransport": str(self.secure).lower()}
        return (
            iam.decide([json.loads(policy)], action, arn, said, f"arn:aws:iam::{self.account}:root") == "explicitDeny"
        )

    def _policy(self, request: Request, bucket: str) -> Answer | None:
        if request.method == "PUT":
            self.policies[bucket] = request.body.decode()
            return 204, [("Content-Length", "0")], b""
        if request.method == "GET" and bucket in self.policies:
            body = self.policies[bucket].encode()
            return 200, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))], body
        return None

    def _create_bucket(self, request: Request, bucket: str) -> Answer | None:
        headers = {name.lower(): value for name, value in request.headers}
        region = re.search(r"Credential=[^/]+/\d+/([^/]+)/s3/", headers["authorization"])[1]
        client = self.strict.client("s3", region=region)
        if bucket in {each["Name"] for each in client.list_buckets()["Buckets"]}:
            return None
        place = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        client.create_bucket(Bucket=bucket, **place)
        tree = ElementTree.fromstring(request.body)
        tags = [
            {part.tag.rpartition("}")[2]: part.text for part in tag} for tag in tree.iter() if tag.tag[-4:] == "}Tag"
        ]
        client.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": tags})
        if ownership := headers.get("x-amz-object-ownership"):
            rules = {"Rules": [{"ObjectOwnership": ownership}]}
            client.put_bucket_ownership_controls(Bucket=bucket, OwnershipControls=rules)
        return 200, [("Location", f"/{bucket}"), ("Content-Length", "0")], b""

    def _athena(self, request: Request) -> Answer | None:
        given = json.loads(request.body)
        scope = dict((name.lower(), value) for name, value in request.headers)["authorization"]
        region = re.search(r"Credential=[^/]+/\d+/([^/]+)/athena/", scope)[1]
        groups = get_backend("athena")[self.account][region].work_groups
        action = request.target.rpartition(".")[2]
        if action in ("GetWorkGroup", "DeleteWorkGroup") and given["WorkGroup"] not in groups:
            said = f"WorkGroup {given['WorkGroup']} is not found."
            return _json(400, {"__type": "InvalidRequestException", "Message": said})
        if action != "UpdateWorkGroup":
            return None
        group, updates = groups[given["WorkGroup"]], given["ConfigurationUpdates"]
        group.state = given.get("State", group.state)
        results = group.configuration.setdefault("ResultConfiguration", {})
        results.update(updates.pop("ResultConfigurationUpdates", {}))
        group.configuration.update(updates)
        return _json(200, {})

    def _simulated(self, given: dict[str, str]) -> Answer:
        asked = [(name, given[name]) for name in sorted(given)]
        actions = [value for name, value in asked if name.startswith("ActionNames.member.")]
        resources = [value for name, value in asked if name.startswith("ResourceArns.member.")]
        results = "".join(
            f"<member><EvalActionName>{action}</EvalActionName><EvalResourceName>{resource}</EvalResourceName>"
            f"<EvalDecision>{iam.decide(self.rights or [], action, resource)}</EvalDecision></member>"
            for resource in resources
            for action in actions
        )
        return _xml(
            200,
            '<SimulatePrincipalPolicyResponse xmlns="https://iam.amazonaws.com/doc/2010-05-08/">'
            f"<SimulatePrincipalPolicyResult><IsTruncated>false</IsTruncated>"
            f"<EvaluationResults>{results}</EvaluationResults></SimulatePrincipalPolicyResult>"
            "<ResponseMetadata><RequestId>simulated</RequestId></ResponseMetadata></SimulatePrincipalPolicyResponse>",
        )


def _xml(status: int, text: str) -> Answer:
    return status, [("Content-Type", "text/xml"), ("Content-Length", str(len(text.encode())))], text.encode()


def _json(status: int, value: Any) -> Answer:
    body = json.dumps(value).encode()
    return status, [("Content-Type", "application/x-amz-json-1.1"), ("Content-Length", str(len(body)))], body
