"""The steps of a deployment in Snowflake, in order: what Snowflake needs to show the tables of Glue, and who may.

`snowflake/volume` and `snowflake/integration` find who assumes our IAM role, which the trust policy of
`aws/role/snowflake` names; that role comes before `snowflake/volume_verified` in a deployment's list.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakehouse import naming
from lakehouse.cloud import snowflake_keys
from lakehouse.cloud.names import Names
from lakehouse.cloud.secrets import Secrets
from lakehouse.cloud.snowflake_grants import Grants, membership, ownership, privilege, reading
from lakehouse.cloud.snowflake_keys import Keys, ServiceUser
from lakehouse.cloud.snowflake_objects import GivenWarehouse, Holder, Integration, Object, Volume
from lakehouse.cloud.snowflake_session import Administrator
from lakehouse.cloud.snowflake_tables import IcebergTables, Source
from lakehouse.cloud.step import Found, Step
from lakehouse.config import Config
from lakehouse.deployment import Deployment
from lakehouse.topic import Topic
from resources import snowflake_sql as sql
from resources.aws import Glue
from resources.confluent.waiting import REAL, Clock, wait

if TYPE_CHECKING:
    from snowflake.connector import SnowflakeConnection

VERIFIED_WITHIN_SECONDS = 120
"""IAM tells its own servers of a new role within seconds, mostly; AWS promises no time."""

UNREMARKABLE = ("PASSED", "SKIPPED", "", None)
"""What the SYSTEM$VERIFY functions say of what is no reason for a refusal."""


@dataclass(frozen=True)
class Key(Step):
    """The first key pair of the service user, in AWS Secrets Manager."""

    name: str
    what: str
    user: Callable[[], ServiceUser]
    """Asks the administrator's session for its account, which opens it."""
    needs: tuple[str, ...] = ()

    def find(self, found: Found) -> Keys | None:
        """None while no slot of the user has a key."""
        return snowflake_keys.installed(self.user())

    def create(self, found: Found) -> Keys:
        """Make it, and prove that it logs in."""
        return snowflake_keys.install(self.user())

    def delete(self, found: Found, it: Keys) -> None:
        """Nothing: `kept` says why."""

    def kept(self, found: Found, it: Keys) -> str:
        """Always."""
        return "goes with the user; its secret with the deployment's secrets"


@dataclass(frozen=True)
class Verification:
    """What Snowflake says of its way into AWS, for `wait`."""

    phase: str
    detail: str


@dataclass(frozen=True)
class Verified(Step):
    """Snowflake may assume our IAM role. AWS takes a while until all of it knows a new role."""

    name: str
    administrator: Administrator
    what: str
    question: str
    """The statement that asks Snowflake."""
    needs: tuple[str, ...] = ()
    clock: Clock = field(default=REAL, repr=False)

    def find(self, found: Found) -> Verification:
        """What Snowflake says now. Never None: what stands on it can be taken away when it is broken, too."""
        [row] = self.administrator.rows(self.question)
        said: dict[str, Any] = json.loads(next(iter(row.values())))
        # The reasons are in fields of their own: errorMessage, or one for each thing that was tried.
        reasons = [f"{key}: {value}" for key, value in said.items() if key != "success" and value not in UNREMARKABLE]
        return Verification("verified", "") if said["success"] else Verification("refused", "; ".join(reasons))

    def create(self, found: Found) -> Verification:
        """There is nothing to make."""
        return self.find(found)

    def settle(self, found: Found, it: Verification) -> Verification:
        """Ask until Snowflake is let in.

        Raises: resources.confluent.waiting.TimedOut with what it said last.
        """
        if it.phase == "verified":
            return it
        look = lambda: self.find(found)  # noqa: E731
        return wait(self.what, look, ("verified",), deadline_seconds=VERIFIED_WITHIN_SECONDS, clock=self.clock)

    def differences(self, found: Found, it: Verification) -> list[str]:
        """That it is refused."""
        return [] if it.phase == "verified" else [f"is refused: {it.detail}"]

    def change(self, found: Found, it: Verification) -> Verification:
        """There is nothing to change: `settle` waits."""
        return it

    def delete(self, found: Found, it: Verification) -> None:
        """Nothing: `kept` says why."""

    def kept(self, found: Found, it: Verification) -> str:
        """Always."""
        return "goes with what it is about"


def snowflake_steps(
    administrator: SnowflakeConnection,
    secrets: Secrets,
    names: Names,
    config: Config,
    deployment: Deployment,
    warehouse: str | None,
    clock: Clock = REAL,
) -> list[Step]:
    """All steps in Snowflake, in order.

    Parameters: an open session of an administrator; where the service user's key is kept; the warehouse that queries
    run in, or None to make one.
    """
    admin = Administrator(administrator, deployment.name)
    comment, arn = admin.comment, names.role_arn("snowflake")
    user, role, security = (names.snowflake(purpose) for purpose in ("USER", "ROLE", "SECURITY_ROLE"))
    database, volume, glue = (names.snowflake(purpose) for purpose in ("DATABASE", "VOLUME", "GLUE"))
    schema = naming.snowflake_name(config.namespace)
    if warehouse:
        warehouse = naming.snowflake_name(warehouse)
        warehouse_step: Step = GivenWarehouse("snowflake/warehouse", admin, warehouse)
    else:
        warehouse = names.snowflake("WAREHOUSE")
        creation = sql.create_warehouse(warehouse, comment=comment)
        warehouse_step = Object("snowflake/warehouse", admin, "WAREHOUSE", (warehouse,), creation)
    creation_of_user = sql.create_service_user(
        user, role=role, warehouse=warehouse, namespace=f"{database}.{schema}", comment=comment
    )
    creation_of_volume = sql.create_external_volume(
        volume,
        location=f"s3://{names.bucket}/",
        role_arn=arn,
        external_id=names.external_id("volume"),
        comment=comment,
    )
    creation_of_integration = sql.create_glue_rest_integration(
        glue,
        role_arn=arn,
        external_id=names.external_id("catalog"),
        catalog_id=names.account,
        region=names.region,
        namespace=config.namespace,
        comment=comment,
    )
    into_bucket = {
        "STORAGE_BASE_URL": f"s3://{names.bucket}/",
        "STORAGE_AWS_ROLE_ARN": arn,
        "STORAGE_AWS_EXTERNAL_ID": names.external_id("volume"),
    }
    into_glue = {"CATALOG_NAMESPACE": config.namespace, "API_AWS_EXTERNAL_ID": names.external_id("catalog")}
    objects: list[Step] = [
        Object("snowflake/role/security", admin, "ROLE", (security,), sql.create_role(security, comment=comment)),
        Object("snowflake/role/system", admin, "ROLE", (role,), sql.create_role(role, comment=comment)),
        Object("snowflake/user", admin, "USER", (user,), creation_of_user),
        warehouse_step,
        Holder("snowflake/database", admin, "DATABASE", (database,), sql.create_database(database, comment=comment)),
        Holder(
            "snowflake/schema",
            admin,
            "SCHEMA",
            (database, schema),
            sql.create_schema(database, schema, comment=comment),
            needs=("snowflake/database",),
        ),
        Volume("snowflake/volume", admin, "EXTERNAL VOLUME", (volume,), creation_of_volume, wanted=into_bucket),
        Integration(
            "snowflake/integration", admin, "CATALOG INTEGRATION", (glue,), creation_of_integration, wanted=into_glue
        ),
    ]
    wanted = (
        membership(security, "ROLE", "SYSADMIN"),
        membership(role, "ROLE", "SYSADMIN"),
        membership(role, "USER", user),
        ownership(user, security),
        privilege("USAGE", "WAREHOUSE", (warehouse,), role),
        privilege("USAGE", "DATABASE", (database,), role),
        privilege("USAGE", "SCHEMA", (database, schema), role),
        privilege("CREATE ICEBERG TABLE", "SCHEMA", (database, schema), role),
        privilege("USAGE", "EXTERNAL VOLUME", (volume,), role),
        privilege("USAGE", "INTEGRATION", (glue,), role),
        reading(database, schema, role),
    )

    def service_user() -> ServiceUser:
        return ServiceUser(
            account=admin.account,
            name=user,
            role=role,
            secret=names.snowflake_secret,
            secrets=secrets,
            administrator=administrator,
            address=_address(administrator),
        )

    return [
        *objects,
        Grants("snowflake/grants", admin, wanted, needs=tuple(step.name for step in objects)),
        Key(
            "snowflake/key",
            f"key pair of Snowflake user '{user}'",
            service_user,
            needs=("snowflake/user", "snowflake/grants"),
        ),
        Verified(
            "snowflake/volume_verified",
            admin,
            f"Snowflake's access to {names.bucket}",
            sql.verify_external_volume(volume),
            needs=("snowflake/volume", "aws/role/snowflake"),
            clock=clock,
        ),
        Verified(
            "snowflake/integration_verified",
            admin,
            f"Snowflake's access to Glue in {names.region}",
            sql.verify_catalog_integration(glue),
            needs=("snowflake/integration", "aws/role/snowflake"),
            clock=clock,
        ),
        *_tables(admin, names, config, schema, warehouse),
    ]


def _tables(admin: Administrator, names: Names, config: Config, schema: str, warehouse: str) -> list[Step]:
    """Tables of Spark's topics, and of Tableflow's, which are in a Glue database that has the Kafka cluster's id."""

    def step(name: str, topics: list[Topic], glue_database: Callable[[Found], str], *needs: str) -> Step:
        return IcebergTables(
            name,
            admin,
            Glue(region=names.region, catalog_id=names.account),
            glue_database,
            tuple(Source(naming.snowflake_name(topic.table), glue_name(topic)) for topic in topics),
            database=names.snowflake("DATABASE"),
            schema=schema,
            role=names.snowflake("ROLE"),
            warehouse=warehouse,
            volume=names.snowflake("VOLUME"),
            integration=names.snowflake("GLUE"),
            # Not the verifications, though they come before: whoever cannot be let in any more can be taken away.
            needs=("snowflake/schema", "snowflake/volume", "snowflake/integration", *needs),
        )

    def glue_name(topic: Topic) -> str:
        return topic.table if topic.engine == "spark" else topic.topic

    spark = [topic for topic in config.topics.values() if topic.engine == "spark"]
    tableflow = [topic for topic in config.topics.values() if topic.engine == "tableflow"]
    steps = [step("snowflake/tables", spark, lambda found: config.namespace)]
    if tableflow:
        cluster = "confluent/cluster"
        steps.append(step("snowflake/tableflow_tables", tableflow, lambda found: found[cluster].id, cluster))
    return steps


def _address(session: SnowflakeConnection) -> dict[str, Any]:
    # The connector tells its protocol nowhere else.
    return {"host": session.host, "port": session.port, "protocol": session._protocol}
