"""The objects of a deployment in a Snowflake account: each is created by one statement and dropped by another.

Some open AWS or a REST catalog to Snowflake, which is verified.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakehouse.core.errors import LakehouseError
from lakehouse.core.polling import SYSTEM_CLOCK, Clock
from lakehouse.deploy.resource import EXISTED, Outputs, Resource, T, Undeletable, Updatable
from lakehouse.deploy.snowflake.administrator import Administrator
from lakehouse.deploy.waiting import wait
from resources.confluent.clusters import Cluster
from resources.snowflake import sql
from resources.snowflake.session import Row, UnknownForm, json_object, properties, single_value, text_of, value_of

CONTENTS = (
    *("OBJECTS", "STAGES", "FILE FORMATS", "SEQUENCES", "PIPES", "STREAMS", "TASKS", "ALERTS"),
    *("USER FUNCTIONS", "USER PROCEDURES"),
)
"""Kinds of objects in schemas, which are dropped with their schema. OBJECTS are tables and views."""
OWN_SCHEMAS = ("INFORMATION_SCHEMA", "PUBLIC")
"""Schemas with which Snowflake creates a database."""


@dataclass(frozen=True, repr=False)
class SnowflakeResource(Resource[T]):
    """A resource in one account."""

    address: str
    administrator: Administrator


@dataclass(frozen=True, kw_only=True, repr=False)
class NamedObject(SnowflakeResource[T]):
    """An object that SHOW finds by its name."""

    kind: str
    """As CREATE names it: EXTERNAL VOLUME."""
    identifier: tuple[str, ...]
    """One name; of a schema two, the database's first."""
    creation: str
    """The statement that creates it, IF NOT EXISTS."""
    after: tuple[Resource[Any], ...] = ()
    """Resources that must exist first."""

    @property
    def label(self) -> str:
        return f"Snowflake {self.kind.lower()} '{'.'.join(self.identifier)}'"

    def create(self, outputs: Outputs) -> T:
        self.administrator.change(self.creation)
        return self.read_existing(outputs)

    def delete(self, outputs: Outputs, current: T) -> None:
        self.administrator.change(sql.drop(self.kind, *self.identifier))

    def row(self) -> Row | None:
        """Return the object's row of SHOW; None if it does not exist."""
        return self.administrator.find(self.kind, *self.identifier)


@dataclass(frozen=True, kw_only=True, repr=False)
class AccountObject(NamedObject[Row]):
    """A role, user, warehouse, database or schema, whose state is its row of SHOW."""

    existing: bool = False
    """True if it existed before the deployment: it is used, and never changed."""

    @property
    def retained_because(self) -> str:
        return EXISTED if self.existing else ""

    def read(self, outputs: Outputs) -> Row | None:
        return self._existing_row() if self.existing else self.row()

    def _existing_row(self) -> Row:
        [name] = self.identifier
        rows = self.administrator.read(
            sql.show(self.kind, name), lambda rows: [row for row in rows if text_of(row, "name") == name]
        )
        if rows:
            return rows[0]
        raise LakehouseError(
            f"The Snowflake account {self.administrator.account} has no {self.kind.lower()} {name} that the "
            f"administrator's role may see. None was created in its place. Correct `existing` in lakehouse.yaml "
            f"(--snowflake-warehouse); without it, the deployment creates one of its own"
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class Container(AccountObject):
    """A database or schema. It is retained while it holds anything that the deployment did not create."""

    def retained(self, outputs: Outputs, current: Row) -> str:
        # Called after the deployment's own tables were dropped.
        database, *schema = self.identifier
        others = [
            f"{within}.{name}"
            for kind in CONTENTS
            for within, name in self.administrator.read(sql.show_in_database(kind, database), _schemas_and_names)
            if within != "INFORMATION_SCHEMA" and schema in ([], [within])
        ]
        if not schema:
            others += self.administrator.read(sql.show_in_database("SCHEMAS", database), self._schemas_of_others)
        return f"holds what the deployment did not make: {', '.join(others[:5])}" if others else ""

    def _schemas_of_others(self, rows: list[Row]) -> list[str]:
        comments = {text_of(row, "name"): value_of(row, "comment") for row in rows}
        return [
            f"schema {name}"
            for name, comment in comments.items()
            if name not in OWN_SCHEMAS and comment != self.administrator.comment
        ]


@dataclass(frozen=True)
class SnowflakePrincipal:
    """Snowflake's user that assumes the deployment's IAM role, with its external id and all settings of DESC."""

    iam_user_arn: str
    external_id: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, repr=False)
class AwsAccess(NamedObject[SnowflakePrincipal], Updatable[SnowflakePrincipal]):
    """An object by which Snowflake accesses the AWS account."""

    declared: Mapping[str, str]
    """Settings in the words of DESC. One that Snowflake does not show is not compared."""

    def diff(self, outputs: Outputs, current: SnowflakePrincipal) -> list[str]:
        return differing(self.declared, current.settings)


@dataclass(frozen=True, kw_only=True, repr=False)
class ExternalVolume(AwsAccess):
    """An external volume with one location."""

    def read(self, outputs: Outputs) -> SnowflakePrincipal | None:
        if self.row() is None:
            return None
        return self.administrator.read(sql.describe(self.kind, *self.identifier), _principal)

    def update(self, outputs: Outputs, current: SnowflakePrincipal) -> SnowflakePrincipal:
        raise left_as_it_is(self.label, self.diff(outputs, current))


def differing(declared: Mapping[str, str], settings: Mapping[str, Any]) -> list[str]:
    """List the settings that are not as declared, a phrase each. One that is not shown is not compared."""
    return [
        f"{setting} is {settings[setting]!r} instead of {str(value)!r}"
        for setting, value in declared.items()
        if settings.get(setting, value) != value
    ]


def namespace_of(declared: str | Resource[Cluster], outputs: Outputs) -> str:
    """Return the namespace of a catalog: the declared name, or the id of the Kafka cluster, which Tableflow uses."""
    return declared if isinstance(declared, str) else outputs[declared].id


def left_as_it_is(label: str, differences: Sequence[str]) -> LakehouseError:
    """Return the error for an object that cannot be changed: Snowflake's tables depend on it, not on a replacement."""
    return LakehouseError(
        f"{label} differs: {'; '.join(differences)}. It was left unchanged, because the tables in Snowflake "
        f"depend on it. Correct it in lakehouse.yaml; or run `lakehouse deploy delete`, which keeps tables and files "
        f"in AWS, and then `lakehouse deploy create`"
    )


def _principal(rows: list[Row]) -> SnowflakePrincipal:
    location = json_object(text_of(properties(rows), "STORAGE_LOCATION_1"))
    iam_user, external_id = "STORAGE_AWS_IAM_USER_ARN", "STORAGE_AWS_EXTERNAL_ID"
    return SnowflakePrincipal(text_of(location, iam_user), text_of(location, external_id), location)


def _schemas_and_names(rows: list[Row]) -> list[tuple[str, str]]:
    return [(text_of(row, "schema_name"), text_of(row, "name")) for row in rows]


VERIFIED_WITHIN_SECONDS = 120
"""A new IAM role is usually effective within seconds; AWS documents no limit."""

UNREMARKABLE = ("PASSED", "SKIPPED", "", None)
"""Values in responses of the SYSTEM$VERIFY functions that are no reason for a refusal."""


@dataclass(frozen=True)
class AccessState:
    """Snowflake's response about its access, for `wait`."""

    phase: str
    detail: str


@dataclass(frozen=True, kw_only=True, repr=False)
class AccessVerification(SnowflakeResource[AccessState], Updatable[AccessState], Undeletable[AccessState]):
    """Snowflake's access to AWS by the deployment's IAM role. A new role is effective after some delay."""

    retained_because = "is deleted with the objects that it verifies"
    label: str
    question: str
    """The statement that verifies access."""
    after: tuple[Resource[Any], ...]
    """The resources that are verified."""
    clock: Clock = SYSTEM_CLOCK

    def read(self, outputs: Outputs) -> AccessState:
        # Never None, so that dependents can be deleted without access.
        return self.administrator.read(self.question, _verification)

    def create(self, outputs: Outputs) -> AccessState:
        return self.read(outputs)

    def wait_until_ready(self, outputs: Outputs, current: AccessState) -> AccessState:
        if current.phase == "verified":
            return current
        return wait(
            self.label,
            lambda: self.read(outputs),
            ("verified",),
            deadline_seconds=VERIFIED_WITHIN_SECONDS,
            clock=self.clock,
        )

    def diff(self, outputs: Outputs, current: AccessState) -> list[str]:
        return [] if current.phase == "verified" else [f"is refused: {current.detail}"]

    def update(self, outputs: Outputs, current: AccessState) -> AccessState:
        # `wait_until_ready` waits.
        return current


def _verification(rows: list[Row]) -> AccessState:
    response = json_object(single_value(rows, str))
    success = value_of(response, "success")
    if not isinstance(success, bool):
        raise UnknownForm(f"has a success of type {type(success).__name__} instead of true or false")
    # The reasons are in fields of their own: errorMessage, or one for each attempt.
    reasons = [f"{key}: {value}" for key, value in response.items() if key != "success" and value not in UNREMARKABLE]
    return AccessState("verified", "") if success else AccessState("refused", "; ".join(reasons))
