"""IAM roles with one inline policy each, by whom they are for."""

from __future__ import annotations

import json
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from lakehouse.deploy.aws import policies
from lakehouse.deploy.aws.documents import same
from lakehouse.deploy.aws.policies import Policy
from lakehouse.deploy.aws.step import EVERY_SECONDS, GONE_SECONDS, AwsStep
from lakehouse.deploy.step import Found, beyond
from resources.confluent.waiting import wait_gone
from resources.secrets_manager import TAG

POLICY = "lakehouse"
"""The inline policy of every role."""


@dataclass(frozen=True)
class FoundRole:
    """A role as it is."""

    arn: str
    trust: Policy
    access: Policy | None
    """None when it has no policy of ours (yet)."""


@dataclass(frozen=True)
class Role(AwsStep):
    """`aws/role/<purpose>`. What it is for says whom it trusts and what it may do."""

    purpose: ClassVar[str]
    lives_in = ()

    @property
    def name(self) -> str:
        """The step, by its purpose."""
        return f"aws/role/{self.purpose}"

    @property
    def what(self) -> str:
        """The role, named."""
        return f"IAM role '{self._role}'"

    @abstractmethod
    def trust(self, found: Found) -> Policy:
        """Who may assume it."""

    @abstractmethod
    def access(self, found: Found) -> Policy:
        """What it may do."""

    def find(self, found: Found) -> FoundRole | None:
        """The role with both policies."""
        answer = self._find("get_role")
        if answer is None:
            return None
        role = answer["Role"]
        tag = f"aws iam tag-role --role-name {self._role} --tags Key={TAG},Value={self.names.deployment}"
        self.claim(self.what, role.get("Tags", ()), tag)
        access = self._find("get_role_policy", PolicyName=POLICY)
        return FoundRole(role["Arn"], role["AssumeRolePolicyDocument"], access and access["PolicyDocument"])

    def create(self, found: Found) -> FoundRole:
        """Make it with its tag and trust, then give it its rights: what is left undone then is a difference."""

        def make() -> None:
            self._call(
                "create_role",
                AssumeRolePolicyDocument=json.dumps(self.trust(found)),
                Description=f"Lakehouse deployment {self.names.deployment}: {self.purpose}",
                Tags=self.tags,
            )
            # IAM learns of a new role one server after the other.
            self.service("iam").wait("role_exists", RoleName=self._role)

        return self.change(found, self.made(make, found))

    def settle(self, found: Found, it: FoundRole) -> FoundRole:
        """Wait until IAM shows it. Other services learn of it later: who uses it waits for that."""
        self.service("iam").wait("role_exists", RoleName=self._role)
        return it

    def differences(self, found: Found, it: FoundRole) -> list[str]:
        """Another trust, or other rights."""
        wrong = {
            "it trusts others than it should": not same(it.trust, self.trust(found)),
            "it has no rights yet": it.access is None,
            "its rights are others than they should be": it.access is not None
            and not same(it.access, self.access(found)),
        }
        return [phrase for phrase, is_wrong in wrong.items() if is_wrong]

    def change(self, found: Found, it: FoundRole) -> FoundRole:
        """Put trust and rights right."""
        trust, access = self.trust(found), self.access(found)
        if not same(it.trust, trust):
            self._call("update_assume_role_policy", PolicyDocument=json.dumps(trust))
        if not same(it.access, access):
            self._call("put_role_policy", PolicyName=POLICY, PolicyDocument=json.dumps(access))
        return FoundRole(it.arn, trust, access)

    def remark(self, found: Found, it: FoundRole) -> str:
        """Name policies that the deployment did not give it: they may allow more than it should."""
        remove = f"aws iam {{}} --role-name {self._role}"
        found_beyond = [
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
        return beyond(found_beyond)

    def delete(self, found: Found, it: FoundRole) -> None:
        """Take its rights, whoever gave them, then delete it."""
        if self._find("get_role"):
            for name in self._inline():
                self._find("delete_role_policy", PolicyName=name)
            for arn in self._attached():
                self._find("detach_role_policy", PolicyArn=arn)
            self._find("delete_role")
        wait_gone(
            self.what,
            lambda: self._find("get_role"),
            deadline_seconds=GONE_SECONDS,
            every_seconds=EVERY_SECONDS,
            clock=self.clock,
        )

    @property
    def _role(self) -> str:
        return self.names.role(self.purpose)

    @property
    def _deployment(self) -> policies.Deployment:
        return policies.Deployment(self.names.account, self.names.region, self.names.bucket)

    def _inline(self) -> list[str]:
        """Names of its inline policies."""
        return list(self.service("iam").items("list_role_policies", "PolicyNames", RoleName=self._role))

    def _attached(self) -> list[str]:
        """ARNs of its attached policies."""
        listed = self.service("iam").items("list_attached_role_policies", "AttachedPolicies", RoleName=self._role)
        return [policy["PolicyArn"] for policy in listed]

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.service("iam").call(method, RoleName=self._role, **parameters)

    def _find(self, method: str, **parameters: Any) -> dict[str, Any] | None:
        return self.service("iam").find(method, RoleName=self._role, **parameters)
