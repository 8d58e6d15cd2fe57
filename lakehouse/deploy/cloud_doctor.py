"""Check, before anything is created, that the three clouds accept the credentials, and that AWS allows what a
deployment needs.
"""

import re
from collections.abc import Iterator

import boto3

from lakehouse.config.model import Config
from lakehouse.core.errors import Diagnostic, LakehouseError
from lakehouse.deploy.aws.aws_service import Aws
from lakehouse.deploy.aws.iam_actions import needed
from lakehouse.deploy.aws.iam_role import IamRole
from lakehouse.deploy.confluent.tableflow import OpenCatalogResource
from lakehouse.deploy.credentials import CloudCredentials
from lakehouse.deploy.graph import deployment_resources
from lakehouse.deploy.snowflake.administrator import Administrator
from resources.confluent.organization import Environments
from resources.snowflake.session import single_value

SERVICES = ("s3", "glue", "athena", "secretsmanager")
"""The services that a region must have."""

SHOWN = 5
"""Number of missing permissions that are listed; the others are counted."""


def examine(credentials: CloudCredentials, config: Config) -> list[Diagnostic]:
    """Check everything, also after a check has failed. Nothing is changed."""
    return [*_aws(credentials, config), _confluent(credentials), _snowflake(credentials)]


def _aws(credentials: CloudCredentials, config: Config) -> Iterator[Diagnostic]:
    region, account = credentials.deployment.region, credentials.deployment.account
    try:
        session = credentials.session
        yield _region(session, region)
        aws = Aws(session, region)
        caller = aws.service("sts").call("get_caller_identity")
    except LakehouseError as error:
        yield Diagnostic(
            "AWS credentials", False, str(error), "Sign in to AWS: `aws sts get-caller-identity` has to work"
        )
        return
    matches = caller["Account"] == account
    detail = caller["Arn"] if matches else f"{caller['Arn']}, and the deployment is of account {account}"
    yield Diagnostic("AWS credentials", matches, detail, "Choose another --profile, or correct lakehouse.yaml")
    if matches:
        yield _permissions(aws, credentials, config, caller["Arn"])


def _region(session: boto3.Session, region: str) -> Diagnostic:
    lacking = [name for name in SERVICES if region not in session.get_available_regions(name)]
    detail = f"{region} has no {', '.join(lacking)}" if lacking else region
    return Diagnostic("AWS region", not lacking, detail, "Correct `region` of the deployment in lakehouse.yaml")


def _permissions(aws: Aws, credentials: CloudCredentials, config: Config, caller: str) -> Diagnostic:
    subject = "AWS permissions"
    try:
        identity = _identity(aws, caller)
        if identity is None:
            return Diagnostic(subject, True, f"could not be simulated: {caller} is no user or role")
        refused = list(_refused(aws, identity, _needed(credentials, config)))
    except LakehouseError as error:
        return Diagnostic(subject, True, f"could not be simulated: {error}")
    more = f" and {len(refused) - SHOWN} more" if len(refused) > SHOWN else ""
    detail = f"not allowed: {'; '.join(refused[:SHOWN])}{more}" if refused else "all that a deployment needs"
    return Diagnostic(subject, not refused, detail, f"Allow these to {identity}")


def _needed(credentials: CloudCredentials, config: Config) -> dict[str, tuple[str, ...]]:
    resources = deployment_resources(config, credentials)
    roles = [resource.purpose for resource in resources if isinstance(resource, IamRole)]
    catalogs = [resource for resource in resources if isinstance(resource, OpenCatalogResource)]
    secrets = [catalog.client.declared.secret for catalog in catalogs]
    return needed(credentials.names, config.namespace, roles, "confluent" in roles, secrets)


def _identity(aws: Aws, caller: str) -> str | None:
    """Return the user or role whose policies apply; a session's ARN has no path, which the simulation needs."""
    if session := re.fullmatch(r"arn:aws:sts::\d{12}:assumed-role/([^/]+)/.+", caller):
        return str(aws.service("iam").call("get_role", RoleName=session[1])["Role"]["Arn"])
    return caller if re.fullmatch(r"arn:aws:iam::\d{12}:user/.+", caller) else None


def _refused(aws: Aws, identity: str, wanted: dict[str, tuple[str, ...]]) -> Iterator[str]:
    for resource, actions in wanted.items():
        results = aws.service("iam").items(
            "simulate_principal_policy",
            "EvaluationResults",
            PolicySourceArn=identity,
            ActionNames=list(actions),
            ResourceArns=[resource],
        )
        missing = [result["EvalActionName"] for result in results if result["EvalDecision"] != "allowed"]
        if missing:
            yield f"{', '.join(missing)} on {resource}"


def _confluent(credentials: CloudCredentials) -> Diagnostic:
    subject, key = "Confluent Cloud", credentials.confluent_key
    remedy = "Give a Cloud API key of an OrganizationAdmin (CONFLUENT_CLOUD_API_KEY, …_SECRET)"
    if not (key and credentials.confluent_secret):
        return Diagnostic(subject, False, "no Cloud API key was given", remedy)
    try:
        environments = Environments(credentials.confluent.client()).list()
    except LakehouseError as error:
        return Diagnostic(subject, False, str(error), remedy)
    # Which calls its account may make is unknown: it may have roles through a group, too.
    detail = f"the key {key} has access to {len(environments)} environments; the roles of its account are not checked"
    return Diagnostic(subject, True, detail)


def _snowflake(credentials: CloudCredentials) -> Diagnostic:
    try:
        administrator = Administrator(credentials.snowflake, credentials.names.owner)
        user, role, account = (
            administrator.read(f"SELECT CURRENT_{what}()", lambda rows: single_value(rows, str))
            for what in ("USER", "ROLE", "ACCOUNT")
        )
    except LakehouseError as error:
        remedy = (
            f"Put the administrator's key pair into the secret '{credentials.admin_secret}' as docs/cloud.md describes"
        )
        return Diagnostic("Snowflake", False, str(error), remedy)
    return Diagnostic("Snowflake", True, f"administrator {user} with role {role} in account {account}")
