"""The IAM actions and resources of requests to AWS.

Source: AWS, "Service Authorization Reference"; AWS Glue, "Specifying resource ARNs". A request to an unknown
service or operation raises: if it were ignored, every caller would be allowed to make it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.etree import ElementTree

from moto.backends import get_backend

from tests.support.servers.proxy import Request

LISTING = (
    *("list-type", "prefix", "delimiter", "max-keys", "encoding-type", "continuation-token", "start-after", "marker"),
    "fetch-owner",
)
"""The parameters of a listing."""


@dataclass(frozen=True)
class Asked:
    """One action on one resource."""

    action: str
    resource: str
    context: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Caller:
    """The signer of a request, with the service and region of the signature."""

    access_key: str
    region: str
    service: str

    @classmethod
    def of(cls, request: Request) -> Caller | None:
        """Return the caller, or None if the request is not signed."""
        headers = {name.lower(): value for name, value in request.headers}
        scope = re.search(r"Credential=([^/]+)/\d+/([^/]+)/([a-z0-9]+)/", headers.get("authorization", ""))
        return cls(*scope.groups()) if scope else None


@dataclass(frozen=True)
class Interpreter:
    """A reader of requests to one account, whose moto server runs in this process."""

    account: str

    def asked(self, request: Request, caller: Caller) -> list[Asked]:
        """Return the actions of a request that need a permission."""
        match caller.service:
            case "s3":
                return _s3(request)
            case "glue":
                return self._glue(request, caller.region)
            case "secretsmanager":
                parameters = json.loads(request.body)
                name = parameters.get("SecretId") or parameters["Name"]
                arn = name if name.startswith("arn:") else f"{self._arn('secretsmanager', caller)}:secret:{name}-AbCdEf"
                return [Asked(f"secretsmanager:{_operation(request)}", arn)]
            case "athena":
                return self._athena(request, caller)
            case "sts":
                # GetCallerIdentity needs no permission, and trust policies decide on AssumeRole.
                return []
        raise ValueError(f"Service {caller.service} is not known")

    def _arn(self, service: str, caller: Caller) -> str:
        return f"arn:aws:{service}:{caller.region}:{self.account}"

    def _glue(self, request: Request, region: str) -> list[Asked]:
        parameters, operation = json.loads(request.body), _operation(request)
        arn = f"arn:aws:glue:{region}:{self.account}"
        database = parameters.get("DatabaseName") or (
            parameters.get("Name") if operation.endswith("Database") else None
        )
        database = database or parameters.get("DatabaseInput", {}).get("Name")
        table = parameters.get("TableInput", {}).get("Name") or (
            parameters.get("Name") if operation.endswith("Table") else None
        )
        resources = [f"{arn}:catalog"]
        if database:
            resources.append(f"{arn}:database/{database}")
        if table:
            resources.append(f"{arn}:table/{database}/{table}")
        elif operation == "GetTables":
            resources.append(f"{arn}:table/{database}/*")
        return [Asked(f"glue:{operation}", resource) for resource in resources]

    def _athena(self, request: Request, caller: Caller) -> list[Asked]:
        parameters, operation = json.loads(request.body), _operation(request)
        group = parameters.get("WorkGroup")
        if group is None:
            queries = get_backend("athena")[self.account][caller.region].executions
            group = queries[parameters["QueryExecutionId"]].workgroup.name
        return [Asked(f"athena:{operation}", f"{self._arn('athena', caller)}:workgroup/{group}")]


def _operation(request: Request) -> str:
    return request.target.rpartition(".")[2]


def _s3(request: Request) -> list[Asked]:
    url = urlsplit(request.path)
    bucket, _, key = unquote(url.path).lstrip("/").partition("/")
    query = dict(parse_qsl(url.query, keep_blank_values=True))
    arn = f"arn:aws:s3:::{bucket}"
    if key:
        return [Asked(f"s3:{action}", f"{arn}/{key}") for action in _object_actions(request, query)]
    if request.method == "POST" and "delete" in query:
        keys = [element.text for element in ElementTree.fromstring(request.body).iter() if element.tag.endswith("Key")]
        return [Asked("s3:DeleteObject", f"{arn}/{key}") for key in keys]
    if request.method == "HEAD":
        return [Asked("s3:ListBucket", arn)]
    if request.method == "GET" and "location" in query:
        return [Asked("s3:GetBucketLocation", arn)]
    if request.method == "GET" and not query.keys() - {*LISTING}:
        context = (("s3:prefix", query["prefix"]),) if "prefix" in query else ()
        return [Asked("s3:ListBucket", arn, context)]
    raise ValueError(f"{request.method} {request.path} is not known")


def _object_actions(request: Request, query: dict[str, str]) -> tuple[str, ...]:
    headers = {name.lower() for name, _ in request.headers}
    if "x-amz-copy-source" in headers or {"tagging", "acl"} & query.keys():
        raise ValueError(f"{request.method} {request.path} is not known")
    match request.method:
        case "GET" | "HEAD":
            if "uploadId" in query:
                return ("ListMultipartUploadParts",)
            return ("GetObjectVersion",) if "versionId" in query else ("GetObject",)
        case "PUT" | "POST":
            return ("PutObject",)
        case "DELETE":
            return ("AbortMultipartUpload",) if "uploadId" in query else ("DeleteObject",)
    raise ValueError(f"{request.method} {request.path} is not known")
