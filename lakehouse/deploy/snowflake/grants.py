"""What the roles of a deployment may do in Snowflake: one step for all grants, because SHOW tells them together."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse.deploy.snowflake.session import Administrator
from lakehouse.deploy.step import Found, Step, beyond
from resources import snowflake_sql as sql

Held = frozenset[tuple[str, str]]
"""Grants that are there: a role, and what it has in the words of `Wanted`."""


FUTURE, MEMBER = "SELECT on future tables in ", "being granted to "


@dataclass(frozen=True)
class Wanted:
    """A grant as it is looked for in Held, and the statements that make it."""

    role: str
    having: str
    statements: tuple[str, ...]


def privilege(name: str, kind: str, of: tuple[str, ...], role: str) -> Wanted:
    """`name` is one privilege on an object."""
    return Wanted(role, f"{name} on {kind} {'.'.join(of)}", (sql.grant(name, kind, of, role),))


def reading(database: str, schema: str, role: str) -> Wanted:
    """SELECT on the Iceberg tables that a schema has and will have."""
    # Those that are there first: whoever is killed between the two finds that the second is missing.
    statements = tuple(sql.grant_on_tables(which, database, schema, role) for which in ("ALL", "FUTURE"))
    return Wanted(role, f"{FUTURE}{database}.{schema}", statements)


def ownership(user: str, role: str) -> Wanted:
    """The role owns the user, so it may change its keys."""
    return Wanted(role, f"OWNERSHIP on USER {user}", (sql.grant_ownership_of_user(user, role),))


def membership(role: str, kind: str, grantee: str) -> Wanted:
    """A ROLE or USER has the role."""
    grant = sql.grant_role_to_user if kind == "USER" else sql.grant_role_to_role
    return Wanted(role, f"{MEMBER}{kind} {grantee}", (grant(role, grantee),))


@dataclass(frozen=True)
class Grants(Step):
    """All grants of the deployment's roles. They go when the roles do."""

    name: str
    administrator: Administrator
    wanted: tuple[Wanted, ...]
    needs: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """Of which roles."""
        return f"grants of Snowflake roles {', '.join(sorted(self._roles))}"

    def find(self, found: Found) -> Held:
        """All that the roles have. Never None: some alone are not all."""
        return frozenset((role, having) for role in self._roles for having in self._held_by(role))

    def create(self, found: Found) -> Held:
        """Grant all."""
        return self.change(found, frozenset())

    def differences(self, found: Found, it: Held) -> list[str]:
        """Those that are missing."""
        return [f"{wanted.role} lacks {wanted.having}" for wanted in self._missing(it)]

    def change(self, found: Found, it: Held) -> Held:
        """Grant what is missing."""
        for wanted in self._missing(it):
            for statement in wanted.statements:
                self.administrator.change(statement)
        return self.find(found)

    def remark(self, found: Found, it: Held) -> str:
        """Name grants that nobody declared. What a role may do with the tables of its schemas is not among them."""
        expected = {(wanted.role, wanted.having) for wanted in self.wanted}
        schemas = tuple(f"{having.removeprefix(FUTURE)}." for _, having in expected if having.startswith(FUTURE))

        def is_of_table(having: str) -> bool:
            allowed, _, thing = having.partition(" on ")
            return allowed in ("SELECT", "OWNERSHIP") and thing.rpartition(" ")[2].startswith(schemas)

        extra = sorted(grant for grant in it - expected if not is_of_table(grant[1]))
        return beyond([f"{role} has {having} (`{_revocation(role, having)}`)" for role, having in extra])

    def delete(self, found: Found, it: Held) -> None:
        """Nothing: `kept` says why."""

    def kept(self, found: Found, it: Held) -> str:
        """Always."""
        return "go with the roles"

    @property
    def _roles(self) -> set[str]:
        return {wanted.role for wanted in self.wanted}

    def _missing(self, it: Held) -> list[Wanted]:
        return [wanted for wanted in self.wanted if (wanted.role, wanted.having) not in it]

    def _held_by(self, role: str) -> set[str]:
        ask = self.administrator.rows
        now = {
            f"{row['privilege']} on {row['granted_on'].replace('_', ' ')} {row['name']}"
            for row in ask(sql.show_grants_to_role(role))
        }
        # Their name ends in `.<TABLE>` or alike.
        future = {
            f"{row['privilege']} on future tables in {row['name'].rpartition('.')[0]}"
            for row in ask(sql.show_future_grants_to_role(role))
        }
        members = {f"{MEMBER}{row['granted_to']} {row['grantee_name']}" for row in ask(sql.show_grants_of_role(role))}
        return now | future | members


def _revocation(role: str, having: str) -> str:
    """The statement that takes a grant away, in the words of SHOW GRANTS."""
    if having.startswith(MEMBER):
        return f"REVOKE ROLE {role} FROM {having.removeprefix(MEMBER)}"
    allowed, _, thing = having.partition(" on ")
    if allowed == "OWNERSHIP":
        return f"GRANT OWNERSHIP ON {thing} TO ROLE SYSADMIN COPY CURRENT GRANTS"
    if thing.startswith("future tables in "):
        place = thing.removeprefix("future tables in ")
        thing = f"FUTURE TABLES IN {'SCHEMA' if '.' in place else 'DATABASE'} {place}"
    return f"REVOKE {allowed} ON {thing} FROM ROLE {role}"
