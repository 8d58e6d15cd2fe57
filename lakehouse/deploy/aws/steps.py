"""What a deployment has in AWS, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehouse.config.deployment import Deployment
from lakehouse.config.loader import Config
from lakehouse.core.polling import REAL, Clock
from lakehouse.deploy.aws.bucket import Bucket
from lakehouse.deploy.aws.glue_database import GlueDatabase
from lakehouse.deploy.aws.kept_secrets import KeptSecrets
from lakehouse.deploy.aws.roles import ConfluentRole, MaintenanceRole, ReaderRole, SnowflakeRole, WriterRole
from lakehouse.deploy.aws.service import Aws
from lakehouse.deploy.aws.tables import has_tableflow
from lakehouse.deploy.aws.workgroup import Workgroup
from lakehouse.deploy.names import Names
from lakehouse.deploy.step import Step

if TYPE_CHECKING:
    import boto3


def aws_steps(
    session: boto3.Session, names: Names, config: Config, deployment: Deployment, clock: Clock = REAL
) -> list[Step]:
    """The steps, those without needs first: whoever joins them with other systems' puts each of the others behind what
    it needs. The secrets come before all: deletion comes to them last, for others need them until then.

    Parameters: `clock` is the time by which deletions are waited for.
    """
    aws = Aws(session, names.region)
    steps: list[Step] = [
        KeptSecrets(aws, names, clock),
        Bucket(aws, names, clock),
        GlueDatabase(aws, names, clock, namespace=config.namespace),
        Workgroup(aws, names, clock),
    ]
    if deployment.spark_principals:
        steps += [
            kind(aws, names, clock, config=config, principals=deployment.spark_principals)
            for kind in (WriterRole, MaintenanceRole, ReaderRole)
        ]
    if has_tableflow(config):
        steps.append(ConfluentRole(aws, names, clock))
    return [*steps, SnowflakeRole(aws, names, clock, config=config)]
