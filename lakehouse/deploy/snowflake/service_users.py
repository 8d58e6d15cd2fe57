"""The users of a deployment in Snowflake: the lakehouse's service user, and the one that replaces the keys of both.

The role SECURITY_ROLE owns both users and has no other privilege. Only the second user has the role, and its key is in
a secret of its own, so a program with the lakehouse's key can change no key.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lakehouse.deploy.names import Names
from lakehouse.deploy.resource import Resource
from lakehouse.deploy.snowflake.administrator import Administrator, Session
from lakehouse.deploy.snowflake.grants import Grant, membership, ownership
from lakehouse.deploy.snowflake.key_pair_rotation import ServiceUser
from lakehouse.deploy.snowflake.objects import AccountObject
from lakehouse.deploy.snowflake.service_user_key import ServiceUserKey
from resources.aws.secrets_manager import Secrets
from resources.snowflake import snowflake_sql as sql

ADDRESS = {"host": "host", "port": "port", "protocol": "_protocol"}
"""Attributes of the connector's sessions; there is no public one for the protocol."""


@dataclass(frozen=True)
class KeyHolder:
    """A user with a key pair, the role of its sessions, and the secret of its private key."""

    part: str
    """Distinguishes its resources from those of the other user; empty for the service user."""
    name: str
    role: str
    secret: str
    warehouse: str = ""
    namespace: str = ""


@dataclass(frozen=True)
class ServiceUsers:
    """The roles, users and key pairs."""

    session: Session
    """Of an administrator, or of the user that replaces keys."""
    secrets: Secrets
    names: Names
    namespace: str
    """Default database and schema of the service user, as `DB.SCHEMA`."""

    @cached_property
    def service(self) -> KeyHolder:
        """The user of the running lakehouse."""
        names = self.names
        warehouse = names.snowflake("WAREHOUSE")
        return KeyHolder(
            "", names.snowflake("USER"), names.snowflake("ROLE"), names.snowflake_secret, warehouse, self.namespace
        )

    @cached_property
    def rotation(self) -> KeyHolder:
        """The user that replaces the keys of both."""
        names = self.names
        role, secret = names.snowflake("SECURITY_ROLE"), names.snowflake_rotation_secret
        return KeyHolder("rotation_", names.snowflake("ROTATION_USER"), role, secret)

    def objects(self) -> list[AccountObject]:
        """List the roles, then the users."""
        roles = {"security": self.rotation.role, "system": self.service.role}
        return [*(self._role(part, name) for part, name in roles.items()), *map(self.user, self._holders)]

    def user(self, holder: KeyHolder) -> AccountObject:
        """Return a user."""
        creation = sql.create_service_user(
            holder.name,
            role=holder.role,
            warehouse=holder.warehouse,
            namespace=holder.namespace,
            comment=self._administrator.comment,
        )
        return AccountObject(
            f"snowflake/{holder.part}user",
            self._administrator,
            kind="USER",
            identifier=(holder.name,),
            creation=creation,
        )

    def grants(self) -> Iterator[Grant]:
        """Yield who has which role, and the ownership of the users."""
        for holder in reversed(self._holders):
            yield membership(holder.role, "ROLE", "SYSADMIN")
        for holder in self._holders:
            yield membership(holder.role, "USER", holder.name)
            yield ownership(holder.name, self.rotation.role)

    def keys(self, grants: Resource[Any]) -> list[ServiceUserKey]:
        """List the key pairs: that of the user which replaces keys is the last, because the other is replaced with it.

        Args:
            grants: The grants with which the users log in.
        """
        return [self._key(holder, (self.user(holder), grants)) for holder in self._holders]

    @property
    def _holders(self) -> tuple[KeyHolder, KeyHolder]:
        return self.service, self.rotation

    @property
    def _administrator(self) -> Administrator:
        return Administrator(self.session, self.names.owner)

    def _role(self, part: str, name: str) -> AccountObject:
        creation = sql.create_role(name, comment=self._administrator.comment)
        return AccountObject(
            f"snowflake/role/{part}", self._administrator, kind="ROLE", identifier=(name,), creation=creation
        )

    def _key(self, holder: KeyHolder, after: tuple[Resource[Any], ...]) -> ServiceUserKey:
        def user() -> ServiceUser:
            return ServiceUser(
                account=self.session.account,
                name=holder.name,
                role=holder.role,
                secret=holder.secret,
                secrets=self.secrets,
                session=self.session,
                address={name: getattr(self.session, attribute) for name, attribute in ADDRESS.items()},
            )

        return ServiceUserKey(address=f"snowflake/{holder.part}key", name=holder.name, user=user, after=after)
