"""The steps of a deployment in Snowflake, in order: what it needs to show the tables of Glue or more, and who may.

`snowflake/volume` and `snowflake/integration` find who assumes our IAM role, which the trust policy of
`aws/role/snowflake` names; that role comes before `snowflake/volume_verified` in a deployment's list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from lakehouse.config.deployment import Deployment
from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core import naming
from lakehouse.core.polling import REAL, Clock
from lakehouse.deploy.names import Names
from lakehouse.deploy.snowflake import keys as snowflake_keys
from lakehouse.deploy.snowflake.grants import Grants, membership, ownership, privilege, reading
from lakehouse.deploy.snowflake.integrations import REFRESH, Integration, RestIntegration, RestVerified
from lakehouse.deploy.snowflake.keys import Keys, ServiceUser
from lakehouse.deploy.snowflake.objects import GivenWarehouse, Holder, Object, Volume
from lakehouse.deploy.snowflake.session import Administrator, Session
from lakehouse.deploy.snowflake.tables import IcebergTables, Source
from lakehouse.deploy.snowflake.verification import Verified
from lakehouse.deploy.step import Found, Step
from resources import snowflake_integrations as integrations
from resources import snowflake_sql as sql
from resources.aws import Glue
from resources.rest_catalog import RestCatalog
from resources.secrets_manager import Secrets


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


def snowflake_steps(
    administrator: Session,
    secrets: Secrets,
    names: Names,
    config: Config,
    deployment: Deployment,
    warehouse: str | None,
    clock: Clock = REAL,
    rest_catalog: Callable[[], RestCatalog] | None = None,
) -> list[Step]:
    """All steps in Snowflake, in order.

    Parameters: an open session of an administrator; where the service user's key is kept; the warehouse that queries
    run in, or None to make one; what gives the environment's REST catalog, where it has one.
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
    creation_of_integration = integrations.create_glue_rest_integration(
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
    into_glue = {
        "CATALOG_NAMESPACE": config.namespace,
        "API_AWS_EXTERNAL_ID": names.external_id("catalog"),
        "SIGV4_IAM_ROLE": arn,
        "SIGV4_SIGNING_REGION": names.region,
        REFRESH: str(integrations.REFRESH_SECONDS),
    }
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
    wanted = [
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
    ]
    rest, rest_schema = names.snowflake("REST"), _rest(schema)
    if rest_catalog:
        creation_of_schema = sql.create_schema(database, rest_schema, comment=comment)
        objects += [
            Holder(
                "snowflake/rest_schema",
                admin,
                "SCHEMA",
                (database, rest_schema),
                creation_of_schema,
                needs=("snowflake/database",),
            ),
            RestIntegration("snowflake/rest_integration", admin, rest, rest_catalog, config.namespace),
        ]
        wanted += [
            privilege("USAGE", "SCHEMA", (database, rest_schema), role),
            privilege("CREATE ICEBERG TABLE", "SCHEMA", (database, rest_schema), role),
            privilege("USAGE", "INTEGRATION", (rest,), role),
            reading(database, rest_schema, role),
        ]

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

    steps = [
        *objects,
        Grants("snowflake/grants", admin, tuple(wanted), needs=tuple(step.name for step in objects)),
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
            integrations.verify_catalog_integration(glue),
            needs=("snowflake/integration", "aws/role/snowflake"),
            clock=clock,
        ),
    ]
    if rest_catalog:
        steps.append(
            RestVerified(
                "snowflake/rest_verified",
                admin,
                "Snowflake's access to the REST catalog",
                integrations.verify_catalog_integration(rest),
                needs=("snowflake/rest_integration",),
                clock=clock,
                integration=rest,
                rest_catalog=rest_catalog,
            )
        )
    return [*steps, *_tables(admin, names, config, warehouse, rest_catalog)]


def _tables(
    admin: Administrator,
    names: Names,
    config: Config,
    warehouse: str,
    rest_catalog: Callable[[], RestCatalog] | None,
) -> Iterator[Step]:
    """Tables of Spark's topics, and of Tableflow's, which are in a Glue database that has the Kafka cluster's id; and
    of Spark's once more, as the REST catalog shows them."""
    glue, schema = Glue(region=names.region, catalog_id=names.account), naming.snowflake_name(config.namespace)
    # Not the verifications, though they come before: whoever cannot be let in any more can be taken away.
    on_glue = ("snowflake/schema", "snowflake/volume", "snowflake/integration")
    tables = partial(
        IcebergTables,
        administrator=admin,
        database=names.snowflake("DATABASE"),
        role=names.snowflake("ROLE"),
        warehouse=warehouse,
        volume=names.snowflake("VOLUME"),
    )
    glue_tables = partial(
        tables,
        schema=schema,
        integration=names.snowflake("GLUE"),
        is_registered=lambda database, table: glue.registration(database, table) is not None,
    )
    topics = config.topics.values()
    of_spark = tuple(_source(each, each.table) for each in topics if each.engine == "spark")
    of_tableflow = tuple(_source(each, each.topic) for each in topics if each.engine == "tableflow")
    yield glue_tables("snowflake/tables", sources=of_spark, namespace=lambda found: config.namespace, needs=on_glue)
    if of_tableflow:
        cluster = "confluent/cluster"
        yield glue_tables(
            "snowflake/tableflow_tables",
            sources=of_tableflow,
            namespace=lambda found: found[cluster].id,
            needs=(*on_glue, cluster),
        )
    if rest_catalog:
        yield tables(
            "snowflake/rest_tables",
            sources=of_spark,
            namespace=lambda found: config.namespace,
            needs=("snowflake/rest_schema", "snowflake/volume", "snowflake/rest_integration"),
            schema=_rest(schema),
            integration=names.snowflake("REST"),
            is_registered=lambda namespace, table: rest_catalog().registered(namespace, table) is not None,
        )


def _source(topic: Topic, catalog_table: str) -> Source:
    return Source(naming.snowflake_name(topic.table), catalog_table)


def _rest(schema: str) -> str:
    """The schema of the same tables over the REST catalog."""
    return f"{schema}_REST"


ADDRESS = {"host": "host", "port": "port", "protocol": "_protocol"}
"""Attributes of the connector's sessions; there is no public one for the protocol."""


def _address(session: Session) -> dict[str, Any]:
    return {name: getattr(session, attribute) for name, attribute in ADDRESS.items()}
