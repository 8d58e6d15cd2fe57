"""An enforcement of IAM: the policies of the signing role decide on each request, and decisions are recorded."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.support.clouds.aws import iam
from tests.support.clouds.aws.calls import Asked, Caller, Interpreter
from tests.support.clouds.aws.gaps import Gaps
from tests.support.servers.proxy import Request, Response

SNOWFLAKE = "snowflake"
"""The access key of the local Snowflake server, which represents a session of the role that Snowflake assumes."""


@dataclass(frozen=True)
class Decided:
    """The decision on a call."""

    role: str
    """Name of the role whose session made the call, or the ARN of a caller that is no role."""
    asked: Asked
    program: str
    """`java` or `python`, from the user agent."""
    allowed: bool


@dataclass
class Enforced:
    """A guard for `Proxy` that refuses calls which the roles of the deployment do not allow.

    `administrators` are access keys that may make every call.
    """

    gaps: Gaps
    administrators: frozenset[str]
    snowflake_role: str
    decided: list[Decided] = field(default_factory=list)
    replaced: dict[str, Any] = field(default_factory=dict)
    """Policies, by name of a role, that apply in place of the role's own."""
    _callers: dict[str, str] = field(default_factory=dict)
    _policies: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.interpreter = Interpreter(self.gaps.account)

    def __call__(self, request: Request) -> Response | None:
        """Return a refusal, or the response of AWS where moto deviates, or None to forward the request to moto."""
        caller = Caller.of(request)
        if caller is None:
            return denied("nobody signed it", is_json=bool(request.target))
        # The local server reads the policies of the role to verify a volume, which Snowflake itself cannot do.
        exempt = caller.access_key == SNOWFLAKE and caller.service == "iam"
        if caller.access_key not in self.administrators and not exempt:
            for decided in self._decide(request, caller):
                self.decided.append(decided)
                if not decided.allowed:
                    message = f"{decided.role} is not authorized to perform {decided.asked.action}"
                    return denied(f"{message} on {decided.asked.resource}", is_json=bool(request.target))
        return self.gaps(request)

    def _decide(self, request: Request, caller: Caller) -> list[Decided]:
        role, policies = self._identity(caller.access_key), []
        name = role.split("/")[1] if ":assumed-role/" in role else role
        if ":assumed-role/" in role:
            policies = [self._policy(name)]
        agent = next((value for key, value in request.headers if key.lower() == "user-agent"), "")
        program = "java" if "java" in agent.lower() else "python"
        return [
            Decided(name, asked, program, is_allowed(policies, asked))
            for asked in self.interpreter.asked(request, caller)
        ]

    def _identity(self, access_key: str) -> str:
        if access_key == SNOWFLAKE:
            return f"arn:aws:sts::{self.gaps.account}:assumed-role/{self.snowflake_role}/snowflake"
        if access_key not in self._callers:
            client = self.gaps.strict.client("sts", access_key=access_key)
            self._callers[access_key] = client.get_caller_identity()["Arn"]
        return self._callers[access_key]

    def _policy(self, role: str) -> Any:
        if role in self.replaced:
            return self.replaced[role]
        if role not in self._policies:
            client = self.gaps.strict.client("iam")
            response = client.get_role_policy(RoleName=role, PolicyName="lakehouse")
            self._policies[role] = response["PolicyDocument"]
        return self._policies[role]


def is_allowed(policies: list[Any], asked: Asked) -> bool:
    """Return whether the policies of an identity allow a call."""
    return iam.decide(policies, asked.action, asked.resource, dict(asked.context)) == "allowed"


def denied(message: str, *, is_json: bool) -> Response:
    """Return the refusal of a service that speaks JSON, or XML."""
    if is_json:
        body = json.dumps({"__type": "AccessDeniedException", "Message": message}).encode()
        kind = "application/x-amz-json-1.1"
    else:
        body = f"<Error><Code>AccessDenied</Code><Message>{message}</Message></Error>".encode()
        kind = "application/xml"
    return 403, [("Content-Type", kind), ("Content-Length", str(len(body)))], body
