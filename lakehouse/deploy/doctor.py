"""Looks, before anything is made, whether the three clouds can be entered and allow what a deployment needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from lakehouse.config.loader import Config
from lakehouse.core.errors import LakehouseError
from lakehouse.core.finding import Finding
from lakehouse.deploy.aws.actions import needed
from lakehouse.deploy.aws.service import Aws
from lakehouse.deploy.credentials import Access

SERVICES = ("s3", "glue", "athena", "secretsmanager")
"""What a region has to have."""

SHOWN = 5
"""How many missing permissions are listed before the rest is counted."""


def examine(access: Access, config: Config) -> list[Finding]:
    """Look at everything; what fails does not keep the rest from being looked at. Nothing is changed."""
    parts: tuple[Callable[[Access, Config], Iterator[Finding]], ...] = (_region, _aws, _confluent, _snowflake)
    return [finding for part in parts for finding in part(access, config)]


def _region(access: Access, config: Config) -> Iterator[Finding]:
    region = access.deployment.region
    lacking = [name for name in SERVICES if region not in access.session.get_available_regions(name)]
    found = f"{region} has no {', '.join(lacking)}" if lacking else region
    yield Finding("AWS region", not lacking, found, "Correct `region` of the deployment in lakehouse.yaml")


def _aws(access: Access, config: Config) -> Iterator[Finding]:
    aws, account = Aws(access.session, access.deployment.region), access.deployment.account
    try:
        caller = aws.service("sts").call("get_caller_identity")
    except LakehouseError as error:
        yield Finding("AWS credentials", False, str(error), "Sign in to AWS: `aws sts get-caller-identity` has to work")
        return
    ours = caller["Account"] == account
    found = caller["Arn"] if ours else f"{caller['Arn']}, and the deployment is of account {account}"
    yield Finding("AWS credentials", ours, found, "Choose another --profile, or correct lakehouse.yaml")
    if ours:
        yield _permissions(aws, access, config, caller["Arn"])


def _permissions(aws: Aws, access: Access, config: Config, caller: str) -> Finding:
    subject = "AWS permissions"
    try:
        identity = _identity(aws, caller)
        if identity is None:
            return Finding(subject, True, f"could not be simulated: {caller} is no user or role")
        refused = list(_refused(aws, identity, needed(access.names, config.namespace)))
    except LakehouseError as error:
        return Finding(subject, True, f"could not be simulated: {error}")
    more = f" and {len(refused) - SHOWN} more" if len(refused) > SHOWN else ""
    found = f"not allowed: {'; '.join(refused[:SHOWN])}{more}" if refused else "all that a deployment needs"
    return Finding(subject, not refused, found, f"Allow these to {identity}")


def _identity(aws: Aws, caller: str) -> str | None:
    """The user or role whose policies count; a session's ARN has no path, and a policy is simulated with one."""
    if session := re.fullmatch(r"arn:aws:sts::\d{12}:assumed-role/([^/]+)/.+", caller):
        return aws.service("iam").call("get_role", RoleName=session[1])["Role"]["Arn"]
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
        missing = [each["EvalActionName"] for each in results if each["EvalDecision"] != "allowed"]
        if missing:
            yield f"{', '.join(missing)} on {resource}"


def _confluent(access: Access, config: Config) -> Iterator[Finding]:
    subject, remedy = (
        "Confluent Cloud",
        "Give a Cloud API key of an OrganizationAdmin (CONFLUENT_CLOUD_API_KEY, …_SECRET)",
    )
    if not (access.confluent_key and access.confluent_secret):
        yield Finding(subject, False, "no Cloud API key was given", remedy)
        return
    try:
        environments = access.confluent.environments().list()
        found = f"the key {access.confluent_key} sees {len(environments)} environments"
        yield Finding(subject, True, found)
    except LakehouseError as error:
        yield Finding(subject, False, str(error), remedy)


def _snowflake(access: Access, config: Config) -> Iterator[Finding]:
    try:
        with access.administrator.cursor() as cursor:
            cursor.execute("SELECT CURRENT_USER(), CURRENT_ROLE(), CURRENT_ACCOUNT()")
            [(user, role, account)] = cursor.fetchall()
        yield Finding("Snowflake", True, f"administrator {user} with role {role} in account {account}")
    except LakehouseError as error:
        remedy = f"Put the administrator's key pair into the secret '{access.admin_secret}' as docs/cloud.md says"
        yield Finding("Snowflake", False, str(error), remedy)
