"""A guard for `proxy.Proxy` that refuses the calls which AWS refuses and moto accepts.

| Call | Refused | AWS's error |
| --- | --- | --- |
| iam CreateRole, CreatePolicy | a name that is too long (64, 128 characters) | ValidationError |
| iam CreateRole, UpdateAssumeRolePolicy | an invalid trust policy | MalformedPolicyDocument |
| iam CreateRole, UpdateAssumeRolePolicy | a trusted role or user that does not exist | MalformedPolicyDocument |
| iam DeletePolicy | a policy that is attached, or has more than one version | DeleteConflict |
| sts AssumeRole | a role that does not exist, or whose trust policy does not allow it | AccessDenied |
| secretsmanager PutSecretValue | another value for an existing version | ResourceExistsException |
| secretsmanager CreateSecret | a name that is scheduled for deletion | InvalidRequestException |

Sources: the "Errors" of each call in the API references of IAM, STS and Secrets Manager. The trust policy alone
decides on AssumeRole: the policies of the caller are not evaluated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.support.clouds.aws import iam
from tests.support.servers.proxy import Request, Response

NAMES = {"CreateRole": ("RoleName", 64), "CreatePolicy": ("PolicyName", 128)}
TRUST = {"CreateRole": "AssumeRolePolicyDocument", "UpdateAssumeRolePolicy": "PolicyDocument"}
ASSUMING = {"sts:assumerole", "sts:assumerolewithsaml", "sts:assumerolewithwebidentity", "sts:tagsession"}
ASSUMING |= {"sts:setsourceidentity", "sts:*"}


class AwsRefusal(Exception):
    """An error response of AWS: code, message and HTTP status."""

    def __init__(self, code: str, message: str, status: int = 400):
        super().__init__(message)
        self.code, self.message, self.status = code, message, status


@dataclass(frozen=True)
class Call:
    """A request as its service reads it: action, parameters, access key and region."""

    action: str
    parameters: dict[str, Any]
    access_key: str
    region: str
    is_json: bool

    @classmethod
    def of(cls, request: Request) -> Call | None:
        """Return the call, or None if its service is not checked."""
        headers = {name.lower(): value for name, value in request.headers}
        scope = re.search(r"Credential=([^/]+)/\d+/([^/]+)/(iam|sts|secretsmanager)/", headers.get("authorization", ""))
        if scope is None:
            return None
        if scope[3] == "secretsmanager":
            return cls(request.target.rpartition(".")[2], json.loads(request.body), scope[1], scope[2], True)
        parameters = dict(parse_qsl(request.body.decode(), keep_blank_values=True))
        return cls(parameters.get("Action", ""), parameters, scope[1], scope[2], False)


class Strict:
    """The guard."""

    def __init__(self, moto: str):
        """Create a guard.

        Args:
            moto: Address of the moto server whose resources the checks read.
        """
        self.address = moto
        self._session = boto3.session.Session()
        self._clients: dict[tuple[str, ...], Any] = {}
        self._checks: dict[str, tuple[Callable[[Call], None], ...]] = {
            "CreateRole": (self._name, self._trust),
            "UpdateAssumeRolePolicy": (self._trust,),
            "CreatePolicy": (self._name,),
            "DeletePolicy": (self._delete_policy,),
            "AssumeRole": (self._assume_role,),
            "PutSecretValue": (self._put_secret_value,),
            "CreateSecret": (self._create_secret,),
        }

    def __call__(self, request: Request) -> Response | None:
        """Return the refusal of a request, or None if AWS would accept it."""
        call = Call.of(request)
        try:
            for check in self._checks.get(call.action, ()) if call else ():
                check(call)
        except AwsRefusal as refused:
            return _respond(refused, call.is_json)
        except ValueError as unknown:
            return _respond(AwsRefusal("NotImplemented", str(unknown), 501), call.is_json)
        return None

    def client(self, service: str, account: str = "", region: str = "us-east-1", access_key: str = "direct") -> Any:
        """Return a boto3 client of moto without checks, for the owner of an access key or inside any account."""
        key = (service, account, region, access_key)
        if key not in self._clients:
            client = self._clients[key] = self._session.client(
                service,
                endpoint_url=self.address,
                region_name=region,
                aws_access_key_id=access_key,
                aws_secret_access_key="unchecked",
                config=Config(proxies={}),
            )
            if account:
                register = client.meta.events.register
                register(f"before-sign.{service}", lambda request, **_: _inside(request.headers, account))
        return self._clients[key]

    def _name(self, call: Call) -> None:
        parameter, most = NAMES[call.action]
        if len(name := call.parameters[parameter]) > most:
            raise AwsRefusal(
                "ValidationError",
                f"1 validation error detected: Value '{name}' at '{parameter[0].lower()}{parameter[1:]}' failed to "
                f"satisfy constraint: Member must have length less than or equal to {most}",
            )

    def _trust(self, call: Call) -> None:
        for statement in _statements(call.parameters[TRUST[call.action]]):
            principals = statement["Principal"]
            for principal in iam.listed(principals.get("AWS", [])) if isinstance(principals, dict) else ():
                if not self._exists(principal):
                    raise AwsRefusal("MalformedPolicyDocument", f'Invalid principal in policy: "AWS":"{principal}"')

    def _exists(self, principal: str) -> bool:
        if re.fullmatch(r"\*|\d{12}|arn:aws:iam::\d{12}:root|arn:aws:sts::\d{12}:assumed-role/[^/]+/[^/]+", principal):
            return True
        match = re.fullmatch(r"arn:aws:iam::(\d{12}):(role|user)/(?:.+/)?([^/]+)", principal)
        if match is None:
            return False
        client = self.client("iam", account=match[1])
        try:
            if match[2] == "role":
                return client.get_role(RoleName=match[3])["Role"]["Arn"] == principal
            return client.get_user(UserName=match[3])["User"]["Arn"] == principal
        except client.exceptions.NoSuchEntityException:
            return False

    def _delete_policy(self, call: Call) -> None:
        arn = call.parameters["PolicyArn"]
        client = self.client("iam", access_key=call.access_key)
        try:
            attached = client.get_policy(PolicyArn=arn)["Policy"]["AttachmentCount"]
        except client.exceptions.NoSuchEntityException:
            return
        if attached:
            raise AwsRefusal("DeleteConflict", "Cannot delete a policy attached to entities.", 409)
        if len(client.list_policy_versions(PolicyArn=arn)["Versions"]) > 1:
            raise AwsRefusal(
                "DeleteConflict",
                "This policy has more than one version. Before you delete a policy, you must delete the policy's "
                "versions. The default version is deleted with the policy.",
                409,
            )

    def _assume_role(self, call: Call) -> None:
        parameters, role = call.parameters, call.parameters["RoleArn"]
        caller = self.client("sts", access_key=call.access_key).get_caller_identity()["Arn"]
        context = {"sts:ExternalId": parameters["ExternalId"]} if "ExternalId" in parameters else {}
        tags = any(name.startswith("Tags.") for name in parameters)
        for action in ("sts:AssumeRole", *(["sts:TagSession"] if tags else [])):
            if not self._exists(role) or iam.decide([self._trust_of(role)], action, role, context, caller) != "allowed":
                message = f"User: {caller} is not authorized to perform: {action} on resource: {role}"
                raise AwsRefusal("AccessDenied", message, 403)

    def _trust_of(self, role: str) -> dict[str, Any]:
        client = self.client("iam", account=role.split(":")[4])
        return client.get_role(RoleName=role.rpartition("/")[2])["Role"]["AssumeRolePolicyDocument"]

    def _put_secret_value(self, call: Call) -> None:
        token, secret = call.parameters.get("ClientRequestToken"), call.parameters["SecretId"]
        client = self.client("secretsmanager", region=call.region, access_key=call.access_key)
        try:
            version = client.get_secret_value(SecretId=secret, VersionId=token)
        except ClientError:
            # The secret or the version does not exist, or the version has no value yet.
            return
        if version.get("SecretString") != call.parameters.get("SecretString"):
            reason = f"You can't use ClientRequestToken {token} because that value is already in use for a version of "
            raise AwsRefusal("ResourceExistsException", f"{reason}secret {version['ARN']}.")

    def _create_secret(self, call: Call) -> None:
        client = self.client("secretsmanager", region=call.region, access_key=call.access_key)
        try:
            secret = client.describe_secret(SecretId=call.parameters["Name"])
        except client.exceptions.ResourceNotFoundException:
            return
        if "DeletedDate" in secret:
            raise AwsRefusal(
                "InvalidRequestException",
                "You can't create this secret because a secret with this name is already scheduled for deletion.",
            )


def _statements(document: str) -> list[dict[str, Any]]:
    """Return the statements of a trust policy.

    Raises:
        AwsRefusal: The policy is invalid.
    """
    try:
        policy = json.loads(document)
    except ValueError:
        raise AwsRefusal("MalformedPolicyDocument", "This policy contains invalid Json") from None
    statements = iam.listed(policy.get("Statement", [])) if isinstance(policy, dict) else []
    if not statements or not all(isinstance(statement, dict) for statement in statements):
        raise AwsRefusal("MalformedPolicyDocument", "Syntax errors in policy.")
    for statement in statements:
        for field in ("Principal", "Action"):
            if not statement.get(field):
                raise AwsRefusal("MalformedPolicyDocument", f"Missing required field {field}")
        if "Resource" in statement:
            raise AwsRefusal("MalformedPolicyDocument", "Has prohibited field Resource")
        if statement.get("Effect") not in ("Allow", "Deny"):
            raise AwsRefusal("MalformedPolicyDocument", "Syntax errors in policy.")
        if not {action.lower() for action in iam.listed(statement["Action"])} <= ASSUMING:
            message = "AssumeRole policy may only specify STS AssumeRole actions."
            raise AwsRefusal("MalformedPolicyDocument", message)
    return statements


def _inside(headers: Any, account: str) -> None:
    # moto, "Multi-account support".
    headers["x-moto-account-id"] = account


def _respond(refused: AwsRefusal, is_json: bool) -> Response:
    if is_json:
        kind = "application/x-amz-json-1.1"
        body = json.dumps({"__type": refused.code, "Message": refused.message}).encode()
    else:
        kind = "text/xml"
        error = f"<Type>Sender</Type><Code>{refused.code}</Code><Message>{escape(refused.message)}</Message>"
        body = f"<ErrorResponse><Error>{error}</Error><RequestId>refused</RequestId></ErrorResponse>".encode()
    return refused.status, [("Content-Type", kind), ("Content-Length", str(len(body)))], body
