"""A guard for `proxy.Proxy` that handles the calls which moto lacks or handles differently from AWS.

| Call | AWS | moto |
| --- | --- | --- |
| s3 CreateBucket | tags the bucket | ignores the tags |
| s3, with a bucket policy | evaluates its conditions | denies all calls: it lacks the operator Bool |
| athena GetWorkGroup | InvalidRequestException for a missing workgroup | a response without a workgroup |
| athena UpdateWorkGroup | changes the workgroup | NotImplementedError |
| iam SimulatePrincipalPolicy | decides | NotImplementedError |

Sources: the API references of the five calls; Amazon S3, "Bucket policies". The guard keeps
bucket policies and does not forward them to moto. It runs after `proxy.Strict`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from xml.etree import ElementTree

from moto.backends import get_backend

from tests.support.clouds.aws import iam
from tests.support.clouds.aws.proxy import Call, Strict
from tests.support.servers.proxy import Request, Response

OBJECT_ACTIONS = {"GET": "s3:GetObject", "HEAD": "s3:GetObject", "PUT": "s3:PutObject", "DELETE": "s3:DeleteObject"}


@dataclass
class Gaps:
    """The guard. `rights` are the policies that decide SimulatePrincipalPolicy; None forwards the call to moto."""

    strict: Strict
    account: str
    secure: bool = True
    """Value of `aws:SecureTransport`, as no request of these tests uses TLS."""
    rights: list[iam.Policy] | None = None
    policies: dict[str, str] = field(default_factory=dict)

    def __call__(self, request: Request) -> Response | None:
        """Return the response, or None to forward the request to moto."""
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

    def _s3(self, request: Request) -> Response | None:
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
        context = {"aws:SecureTransport": str(self.secure).lower()}
        return (
            iam.decide([json.loads(policy)], action, arn, context, f"arn:aws:iam::{self.account}:root")
            == "explicitDeny"
        )

    def _policy(self, request: Request, bucket: str) -> Response | None:
        if request.method == "PUT":
            self.policies[bucket] = request.body.decode()
            return 204, [("Content-Length", "0")], b""
        if request.method == "GET" and bucket in self.policies:
            body = self.policies[bucket].encode()
            return 200, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))], body
        return None

    def _create_bucket(self, request: Request, bucket: str) -> Response | None:
        headers = {name.lower(): value for name, value in request.headers}
        region = re.search(r"Credential=[^/]+/\d+/([^/]+)/s3/", headers["authorization"])[1]
        client = self.strict.client("s3", region=region)
        if bucket in {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}:
            return None
        location = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        client.create_bucket(Bucket=bucket, **location)
        tree = ElementTree.fromstring(request.body)
        tags = [
            {part.tag.rpartition("}")[2]: part.text for part in tag} for tag in tree.iter() if tag.tag[-4:] == "}Tag"
        ]
        client.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": tags})
        if ownership := headers.get("x-amz-object-ownership"):
            rules = {"Rules": [{"ObjectOwnership": ownership}]}
            client.put_bucket_ownership_controls(Bucket=bucket, OwnershipControls=rules)
        return 200, [("Location", f"/{bucket}"), ("Content-Length", "0")], b""

    def _athena(self, request: Request) -> Response | None:
        parameters = json.loads(request.body)
        scope = dict((name.lower(), value) for name, value in request.headers)["authorization"]
        region = re.search(r"Credential=[^/]+/\d+/([^/]+)/athena/", scope)[1]
        groups = get_backend("athena")[self.account][region].work_groups
        action = request.target.rpartition(".")[2]
        if action in ("GetWorkGroup", "DeleteWorkGroup") and parameters["WorkGroup"] not in groups:
            message = f"WorkGroup {parameters['WorkGroup']} is not found."
            return _json(400, {"__type": "InvalidRequestException", "Message": message})
        if action != "UpdateWorkGroup":
            return None
        group, updates = groups[parameters["WorkGroup"]], parameters["ConfigurationUpdates"]
        group.state = parameters.get("State", group.state)
        results = group.configuration.setdefault("ResultConfiguration", {})
        results.update(updates.pop("ResultConfigurationUpdates", {}))
        group.configuration.update(updates)
        return _json(200, {})

    def _simulated(self, parameters: dict[str, str]) -> Response:
        items = [(name, parameters[name]) for name in sorted(parameters)]
        actions = [value for name, value in items if name.startswith("ActionNames.member.")]
        resources = [value for name, value in items if name.startswith("ResourceArns.member.")]
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


def _xml(status: int, text: str) -> Response:
    return status, [("Content-Type", "text/xml"), ("Content-Length", str(len(text.encode())))], text.encode()


def _json(status: int, value: Any) -> Response:
    body = json.dumps(value).encode()
    return status, [("Content-Type", "application/x-amz-json-1.1"), ("Content-Length", str(len(body)))], body
