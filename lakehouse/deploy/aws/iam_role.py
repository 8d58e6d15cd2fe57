"""An IAM role of a deployment, with one inline policy."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lakehouse.deploy.aws.aws_resource import AwsResource
from lakehouse.deploy.aws.aws_service import Response
from lakehouse.deploy.aws.iam_policies import Policy, same
from lakehouse.deploy.resource import Outputs, Resource, Updatable, undeclared_permissions

REGION_TAG = "lakehouse:region"
"""Distinguishes the roles of deployments in several regions: IAM has none."""
POLICY = "lakehouse"
"""The inline policy of every role."""


@dataclass(frozen=True)
class RoleState:
    """The state of a role."""

    arn: str
    trust: Policy
    access: Policy | None
    """None if it has no policy of the deployment (yet)."""


@dataclass(frozen=True, kw_only=True, repr=False)
class IamRole(AwsResource[RoleState], Updatable[RoleState]):
    """`aws/role/<purpose>`."""

    purpose: str
    trust: Callable[[Outputs], Policy]
    """Returns who may assume it."""
    access: Callable[[Outputs], Policy]
    """Returns what it may do."""
    after: tuple[Resource[Any], ...] = ()
    """The resources whose outputs the policies name."""

    @property
    def address(self) -> str:
        return f"aws/role/{self.purpose}"

    @property
    def tags(self) -> list[dict[str, str]]:
        return [*super().tags, {"Key": REGION_TAG, "Value": self.names.region}]

    @property
    def label(self) -> str:
        return f"IAM role '{self._role}'"

    @property
    def read_depends_on(self) -> tuple[Resource[Any], ...]:
        # A role exists independently of its principals.
        return ()

    def read(self, outputs: Outputs) -> RoleState | None:
        response = self._find("get_role")
        if response is None:
            return None
        role = response["Role"]
        tags = " ".join(f"Key={tag['Key']},Value={tag['Value']}" for tag in self.tags)
        command = f"aws iam tag-role --role-name {self._role} --tags {tags}"
        self.require_ownership(self.label, role.get("Tags", ()), command)
        access = self._find("get_role_policy", PolicyName=POLICY)
        return RoleState(role["Arn"], role["AssumeRolePolicyDocument"], access and access["PolicyDocument"])

    def create(self, outputs: Outputs) -> RoleState:
        # `diff` reports what an interruption leaves out.
        def create() -> None:
            self._call(
                "create_role",
                AssumeRolePolicyDocument=json.dumps(self.trust(outputs)),
                Description=f"Lakehouse deployment {self.names.deployment}: {self.purpose}",
                Tags=self.tags,
            )
            # IAM is eventually consistent: its servers list a new role at different times.
            self.service("iam").wait("role_exists", RoleName=self._role)

        return self.update(outputs, self.create_and_read(create, outputs))

    def wait_until_ready(self, outputs: Outputs, current: RoleState) -> RoleState:
        # Other services accept it later, for which the resources that use it wait.
        self.service("iam").wait("role_exists", RoleName=self._role)
        return current

    def diff(self, outputs: Outputs, current: RoleState) -> list[str]:
        wrong = {
            "its trust policy differs": not same(current.trust, self.trust(outputs)),
            "it has no rights yet": current.access is None,
            "its permissions differ": current.access is not None and not same(current.access, self.access(outputs)),
        }
        return [phrase for phrase, is_wrong in wrong.items() if is_wrong]

    def update(self, outputs: Outputs, current: RoleState) -> RoleState:
        trust, access = self.trust(outputs), self.access(outputs)
        if not same(current.trust, trust):
            self._call("update_assume_role_policy", PolicyDocument=json.dumps(trust))
        if not same(current.access, access):
            self._call("put_role_policy", PolicyName=POLICY, PolicyDocument=json.dumps(access))
        return RoleState(current.arn, trust, access)

    def warning(self, outputs: Outputs, current: RoleState) -> str:
        remove = f"aws iam {{}} --role-name {self._role}"
        undeclared = [
            *(
                f"the inline policy '{name}' (`{remove.format('delete-role-policy')} --policy-name {name}`)"
                for name in self._inline()
                if name != POLICY
            ),
            *(
                f"the attached policy {arn} (`{remove.format('detach-role-policy')} --policy-arn {arn}`)"
                for arn in self._attached()
            ),
        ]
        return undeclared_permissions(undeclared)

    def delete(self, outputs: Outputs, current: RoleState) -> None:
        if self._find("get_role"):
            for name in self._inline():
                self._find("delete_role_policy", PolicyName=name)
            for arn in self._attached():
                self._find("detach_role_policy", PolicyArn=arn)
            self._find("delete_role")
        self.wait_until_gone(self.label, lambda: self._find("get_role"))

    @property
    def _role(self) -> str:
        return self.names.role(self.purpose)

    def _inline(self) -> list[str]:
        """List the names of its inline policies."""
        return list(self.service("iam").items("list_role_policies", "PolicyNames", RoleName=self._role))

    def _attached(self) -> list[str]:
        """List the ARNs of its attached policies."""
        listed = self.service("iam").items("list_attached_role_policies", "AttachedPolicies", RoleName=self._role)
        return [policy["PolicyArn"] for policy in listed]

    def _call(self, method: str, **parameters: Any) -> Response:
        return self.service("iam").call(method, RoleName=self._role, **parameters)

    def _find(self, method: str, **parameters: Any) -> Response | None:
        return self.service("iam").find(method, RoleName=self._role, **parameters)
