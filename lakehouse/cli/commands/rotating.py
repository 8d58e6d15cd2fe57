"""The command `lakehouse deploy rotate`, which replaces keys with credentials of its own."""

from collections.abc import Sequence
from typing import Any

import click

from lakehouse.cli.commands.deploy_options import (
    common_options,
    declared_config,
    explained,
    resources_of,
    rotation_options,
)
from lakehouse.core.text.terminal import visible
from lakehouse.deploy.cloud_credentials import CloudCredentials
from lakehouse.deploy.resource import Outputs, Resource
from lakehouse.deploy.rotation_credentials import RotationCredentials


@click.command(short_help="Replace old keys.")
@common_options
@rotation_options
@click.option("--grace-days", type=click.FloatRange(min=0), help="Days for which a replaced key stays valid.")
def rotate(
    environment: str,
    profile: str | None,
    confluent_url: str,
    debug: bool,
    day_count: float | None,
    retained: int | None,
    grace_days: float | None,
) -> None:
    """Replace Confluent's API keys and Snowflake's key pairs that are old enough, and finish interrupted rotations.

    The command needs no administrator: AWS credentials of a principal in `rotation_principals` are sufficient. The
    identities that it uses in Confluent Cloud and Snowflake are created by `lakehouse deploy create`, and their keys
    are replaced, too.

    The options default to `rotation` of the deployment in lakehouse.yaml. Running programs keep working: a replaced key
    is valid during its grace period. An interrupted rotation can be run again. `--day-count 0` replaces all keys now.
    """
    from lakehouse.deploy.rotation import recorded_outputs

    with explained(debug):
        deployment = declared_config(environment, profile).deployment(environment)
        credentials = RotationCredentials(deployment, confluent_url=confluent_url, environment=environment)
        credentials.check_account()
        resources = resources_of(credentials)
        replace_keys(credentials, resources, day_count, retained, grace_days, recorded_outputs(resources))


def replace_keys(
    credentials: CloudCredentials,
    resources: Sequence[Resource[Any]],
    day_count: float | None,
    retained: int | None,
    grace_days: float | None = None,
    known: Outputs | None = None,
) -> None:
    """Replace keys by the deployment's policy, as far as it is not overridden, and print a line for each key.

    Args:
        credentials: The credentials of an administrator or of the rotation.
        resources: The deployment.
        day_count: The age in days at which a key is replaced.
        retained: Number of valid Confluent keys for each account and API.
        grace_days: Days for which a replaced key stays valid.
        known: Outputs of resources that the credentials may not read.
    """
    from lakehouse.deploy.rotation import Policy, rotate

    declared = credentials.deployment.rotation
    policy = Policy(
        declared.day_count if day_count is None else day_count,
        declared.number_of_api_keys_to_retain if retained is None else retained,
        declared.grace_days if grace_days is None else grace_days,
    )
    for line in rotate(resources, policy, known=known):
        click.echo(visible(line))
