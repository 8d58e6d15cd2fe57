"""Check, before anything is created, that the three clouds can be entered and allow what a deployment needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from lakehouse.config.loader import Config
from lakehouse.core.diagnostic import Diagnostic
from lakehouse.core.errors import LakehouseError
from lakehouse.deploy.aws.aws_service import Aws
from lakehouse.deploy.aws.iam.actions import needed
from lakehouse.deploy.cloud_credentials import CloudCredentials

SERVICES = ("s3", "glue", "athena", "secretsmanager")
"""The services that a region must have."""

SHOWN = 5
"""Number of missing permissions that are listed; the others are counted."""


def examine(credentials: CloudCredentials, config: Config) -> list[Diagnostic]:
    """Check everything, also after a check has failed. Nothing is changed."""
    parts: tuple[Callable[[CloudCredentials, Config], Iterator[Diagnostic]], ...] = (
        _region,
        _aws,
        _confluent,
        _snowflake,
    )
    return [finding for part in parts for finding in part(credentials, config)]


def _region(credentials: CloudCredentials, config: Config) -> Iterator[Diagnostic]:
    region = credentials.deployment.region
    lacking = [name for name in SERVICES if region not in credentials.session.get_available_regions(name)]
    detail = f"{region} has no {', '.join(lacking)}" if lacking else region
    yield Diagnostic("AWS region", not lacking, detail, "Correct `region` of the deployment in lakehouse.yaml")


def _aws(credentials: CloudCredentials, config: Config) -> Iterator[Diagnostic]:
    aws, account = Aws(credentials.session, credentials.deployment.region), credentials.deployment.account
    try:
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


def _permissions(aws: Aws, credentials: CloudCredentials, config: Config, caller: str) -> Diagnostic:
    subject = "AWS permissions"
    try:
        identity = _identity(aws, caller)
        if identity is None:
            return Diagnostic(subject, True, f"could not be simulated: {caller} is no user or role")
        refused = list(_refused(aws, identity, needed(credentials.names, config.namespace)))
    except LakehouseError as error:
        return Diagnostic(subject, True, f"could not be simulated: {error}")
    more = f" and {len(refused) - SHOWN} more" if len(refused) > SHOWN else ""
    detail = f"not allowed: {'; '.join(refused[:SHOWN])}{more}" if refused else "all that a deployment needs"
    return Diagnostic(subject, not refused, detail, f"Allow these to {identity}")


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


def _confluent(credentials: CloudCredentials, config: Config) -> Iterator[Diagnostic]:
    subject, remedy = (
        "Confluent Cloud",
        "Give a Cloud API key of an OrganizationAdmin (CONFLUENT_CLOUD_API_KEY, …_SECRET)",
    )
    if not (credentials.confluent_key and credentials.confluent_secret):
        yield Diagnostic(subject, False, "no Cloud API key was given", remedy)
        return
    try:
        environments = credentials.confluent.environments().list()
        detail = f"the key {credentials.confluent_key} has access to {len(environments)} environments"
        yield Diagnostic(subject, True, detail)
    except LakehouseError as error:
        yield Diagnostic(subject, False, str(error), remedy)


def _snowflake(credentials: CloudCredentials, config: Config) -> Iterator[Diagnostic]:
    try:
        with credentials.snowflake.cursor() as cursor:
            cursor.execute("SELECT CURRENT_USER(), CURRENT_ROLE(), CURRENT_ACCOUNT()")
            [(user, role, account)] = cursor.fetchall()
        yield Diagnostic("Snowflake", True, f"administrator {user} with role {role} in account {account}")
    except LakehouseError as error:
        remedy = (
            f"Put the administrator's key pair into the secret '{credentials.admin_secret}' as docs/cloud.md describes"
        )
        yield Diagnostic("Snowflake", False, str(error), remedy)
