"""Calls of the running lakehouse whose results show whether a permission is granted."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from snowflake.connector.errors import Error as SnowflakeError

from lakehouse.core.errors import LakehouseError
from lakehouse.deploy.aws.aws_service import DENIED, AwsError
from resources.confluent.api_errors import Forbidden

Outcome = Literal["allowed", "denied", "failed", "unchecked"]

AUTHORIZED = frozenset({"NoSuchKey", "NoSuchUpload", "EntityNotFoundException", "AlreadyExistsException"})
"""Error codes of requests that were authorized: AWS decides on the permission before it looks at the object."""
REFUSED_BY_SNOWFLAKE = frozenset({2003, 3001})
"""Codes of Snowflake for an object that is not visible to the role, and for a missing privilege."""
_ACTION = re.compile(r"authorized to perform:? ([\w-]+:\w+)")
"""The action in a refusal (AWS IAM, "Troubleshoot access denied error messages")."""


@dataclass(frozen=True)
class Finding:
    """The result for one permission."""

    role: str
    """Name of the IAM role, of the principal if the deployment has no roles, or of an identity in another cloud."""
    permission: str
    """Action and resource: `s3:PutObject on s3://lake/warehouse/trading/`."""
    outcome: Outcome
    reason: str = ""
    """What is missing or why nothing was checked; empty if the permission is there."""


@dataclass(frozen=True)
class Probe:
    """A call that needs a permission."""

    role: str
    action: str
    """The IAM action, another cloud's role or privilege, or a phrase for a call that needs several permissions."""
    resource: str
    call: Callable[[], object]

    def run(self) -> Finding:
        """Make the call."""
        permission = f"{self.action} on {self.resource}"
        try:
            self.call()
        except LakehouseError as error:
            if isinstance(error, AwsError) and error.code in AUTHORIZED:
                return Finding(self.role, permission, "allowed")
            outcome, reason = self._refusal(error)
            return Finding(self.role, permission, outcome, reason)
        return Finding(self.role, permission, "allowed")

    def _refusal(self, error: LakehouseError) -> tuple[Outcome, str]:
        if any(isinstance(cause, Forbidden) or _is_refused_by_snowflake(cause) for cause in _causes(error)):
            return "denied", f"{self.role} lacks {self.action} ({error})"
        refused = next((cause for cause in _causes(error) if _ACTION.search(str(cause))), None)
        if refused is None and not (isinstance(error, AwsError) and error.code in DENIED):
            return "failed", str(error)
        # A call may need further permissions, such as that for the key of the bucket.
        named = _ACTION.search(str(refused)) if refused else None
        return "denied", f"{self.role} lacks {named[1] if named else self.action} ({error})"


@dataclass(frozen=True)
class Unchecked:
    """A permission for which no call is made."""

    role: str
    permission: str
    reason: str

    def run(self) -> Finding:
        """Return the reason."""
        return Finding(self.role, self.permission, "unchecked", self.reason)


def _is_refused_by_snowflake(error: BaseException) -> bool:
    return isinstance(error, SnowflakeError) and error.errno in REFUSED_BY_SNOWFLAKE


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
