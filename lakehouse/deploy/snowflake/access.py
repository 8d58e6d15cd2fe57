"""Access to a deployment in Snowflake: roles, grants, users and their first key pairs.

There are two users: the lakehouse's service user, and the one that replaces the keys of both. The role SECURITY_ROLE
owns both users and has no other privilege. Only the second user has the role, and its key is in a secret of its own, so
a program with the lakehouse's key can change no key.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lakehouse.deploy.names import Names
from lakehouse.deploy.resource import Outputs, Resource, Undeletable, Updatable, undeclared_permissions
from lakehouse.deploy.snowflake.administrator import Administrator
from lakehouse.deploy.snowflake.key_pair_rotation import Keys, ServiceUser
from lakehouse.deploy.snowflake.objects import AccountObject, SnowflakeResource
from resources.aws.secrets_manager import Secrets
from resources.snowflake import sql
from resources.snowflake.session import Row, SnowflakeSession, text_of

Held = frozenset[tuple[str, str]]
"""Existing grants: a role, and what it has in the words of `Grant.having`."""


FUTURE, MEMBER = "SELECT on future tables in ", "being granted to "


@dataclass(frozen=True)
class Grant:
    """A declared grant as it is looked up in `Held`, and the statements that make it."""

    role: str
    having: str
    statements: tuple[str, ...]


def privilege(name: str, kind: str, of: tuple[str, ...], role: str) -> Grant:
    """Grant one privilege on an object."""
    return Grant(role, f"{name} on {kind} {'.'.join(of)}", (sql.grant(name, kind, of, role),))


def reading(database: str, schema: str, role: str) -> Grant:
    """Grant SELECT on the Iceberg tables that a schema has and will have."""
    # Existing tables first: after an interruption between the two, the second is found to be missing.
    statements = tuple(sql.grant_on_tables(scope, database, schema, role) for scope in ("ALL", "FUTURE"))
    return Grant(role, f"{FUTURE}{database}.{schema}", statements)


def ownership(user: str, role: str) -> Grant:
    """Grant the ownership of a user, with which the role may change its keys."""
    return Grant(role, f"OWNERSHIP on USER {user}", (sql.grant_ownership_of_user(user, role),))


def membership(role: str, kind: str, grantee: str) -> Grant:
    """Grant the role to a ROLE or USER."""
    grant = sql.grant_role_to_user if kind == "USER" else sql.grant_role_to_role
    return Grant(role, f"{MEMBER}{kind} {grantee}", (grant(role, grantee),))


@dataclass(frozen=True, kw_only=True, repr=False)
class Grants(SnowflakeResource[Held], Updatable[Held], Undeletable[Held]):
    """All grants of the deployment's roles, which are dropped with the roles."""

    retained_because = "go with the roles"
    declared: tuple[Grant, ...]
    after: tuple[Resource[Any], ...]
    """The objects and roles that the grants name."""

    @property
    def label(self) -> str:
        return f"grants of Snowflake roles {', '.join(sorted(self._roles))}"

    def read(self, outputs: Outputs) -> Held:
        # Never None: some alone are not all.
        return frozenset((role, having) for role in self._roles for having in self._held_by(role))

    def create(self, outputs: Outputs) -> Held:
        return self.update(outputs, frozenset())

    def diff(self, outputs: Outputs, current: Held) -> list[str]:
        return [f"{grant.role} lacks {grant.having}" for grant in self._missing(current)]

    def update(self, outputs: Outputs, current: Held) -> Held:
        for grant in self._missing(current):
            for statement in grant.statements:
                self.administrator.change(statement)
        return self.read(outputs)

    def warning(self, outputs: Outputs, current: Held) -> str:
        expected = {(grant.role, grant.having) for grant in self.declared}
        schemas = tuple(f"{having.removeprefix(FUTURE)}." for _, having in expected if having.startswith(FUTURE))

        def is_of_table(having: str) -> bool:
            allowed, _, object_ = having.partition(" on ")
            return allowed in ("SELECT", "OWNERSHIP") and object_.rpartition(" ")[2].startswith(schemas)

        extra = sorted(grant for grant in current - expected if not is_of_table(grant[1]))
        return undeclared_permissions(
            [f"{role} has {having} (`{_revocation(role, having)}`)" for role, having in extra]
        )

    @property
    def _roles(self) -> set[str]:
        return {grant.role for grant in self.declared}

    def _missing(self, current: Held) -> list[Grant]:
        return [grant for grant in self.declared if (grant.role, grant.having) not in current]

    def _held_by(self, role: str) -> set[str]:
        read = self.administrator.read
        return {
            *read(sql.show_grants_to_role(role), _present),
            *read(sql.show_future_grants_to_role(role), _future),
            *read(sql.show_grants_of_role(role), _members),
        }


def _present(rows: list[Row]) -> list[str]:
    return [
        f"{text_of(row, 'privilege')} on {text_of(row, 'granted_on').replace('_', ' ')} {text_of(row, 'name')}"
        for row in rows
    ]


def _future(rows: list[Row]) -> list[str]:
    # Their names end in `.<TABLE>` or similar.
    return [
        f"{text_of(row, 'privilege')} on future {_plural(text_of(row, 'grant_on'))} in "
        f"{text_of(row, 'name').rpartition('.')[0]}"
        for row in rows
    ]


def _members(rows: list[Row]) -> list[str]:
    return [f"{MEMBER}{text_of(row, 'granted_to')} {text_of(row, 'grantee_name')}" for row in rows]


def _plural(kind: str) -> str:
    """Return the kind of a future grant as GRANT names it, in lower case; Iceberg tables are tables."""
    return f"{kind.replace('_', ' ').lower().removeprefix('iceberg ')}s"


def _revocation(role: str, having: str) -> str:
    """Return the statement that revokes a grant, in the words of SHOW GRANTS."""
    if having.startswith(MEMBER):
        return f"REVOKE ROLE {role} FROM {having.removeprefix(MEMBER)}"
    allowed, _, object_ = having.partition(" on ")
    if allowed == "OWNERSHIP":
        return f"GRANT OWNERSHIP ON {object_} TO ROLE SYSADMIN COPY CURRENT GRANTS"
    if object_.startswith("future "):
        kinds, _, place = object_.partition(" in ")
        object_ = f"{kinds.upper()} IN {'SCHEMA' if '.' in place else 'DATABASE'} {place}"
    return f"REVOKE {allowed} ON {object_} FROM ROLE {role}"


@dataclass(frozen=True, kw_only=True, repr=False)
class ServiceUserKey(Undeletable[Keys]):
    """The key pair of a service user, in AWS Secrets Manager."""

    address: str
    retained_because = "is deleted with the user; its secret is deleted with the deployment's secrets"
    name: str
    """Of the user."""
    user: Callable[[], ServiceUser]
    """Returns the account of the administrator's session, which it opens."""
    after: tuple[Resource[Any], ...]
    """The user, and the grants with which it logs in."""

    @property
    def label(self) -> str:
        return f"key pair of Snowflake user '{self.name}'"

    def read(self, outputs: Outputs) -> Keys | None:
        return self.user().installed()

    def create(self, outputs: Outputs) -> Keys:
        return self.user().install()


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

    session: SnowflakeSession
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
