"""Options and credentials of the commands `lakehouse deploy`."""

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import click

from lakehouse.config import loader
from lakehouse.config.model import Config
from lakehouse.core.errors import LakehouseError, translate
from lakehouse.core.terminal import visible
from lakehouse.deploy.credentials import ADMIN_SECRET, CloudCredentials
from lakehouse.deploy.resource import Resource
from resources.confluent import URL

Decorator = Callable[[Callable[..., None]], Callable[..., None]]


def _all(*options: Decorator) -> Decorator:
    """Return a decorator that adds options in this order."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


common_options = _all(
    click.option("--env", "environment", required=True, help="Environment of lakehouse.yaml."),
    click.option("--profile", help="AWS profile. Default: that of the AWS tools (AWS_PROFILE, …)."),
    click.option("--confluent-url", envvar="CONFLUENT_CLOUD_URL", default=URL, hidden=True),
    click.option("--debug", is_flag=True, help="Print the traceback of an error."),
)
"""The options that name the environment and the credentials for AWS."""

administrator_options = _all(
    common_options,
    click.option(
        "--confluent-api-key",
        envvar="CONFLUENT_CLOUD_API_KEY",
        show_envvar=True,
        default="",
        help="Id of a Cloud API key. Its secret is read from CONFLUENT_CLOUD_API_SECRET, or prompted for.",
    ),
    click.option(
        "--snowflake-warehouse",
        envvar="LAKEHOUSE_SNOWFLAKE_WAREHOUSE",
        help="Use this existing warehouse instead of creating one.",
    ),
    click.option(
        "--admin-user-secrets-root-path",
        "--admin-service-user-secrets-root-path",
        "admin_secret",
        envvar="LAKEHOUSE_ADMIN_SECRET",
        default=ADMIN_SECRET,
        show_default=True,
        help="Secret in AWS Secrets Manager with the key of Snowflake's administrator.",
    ),
)
"""The common options, and those of the administrators."""

only_option: Decorator = click.option(
    "--only",
    type=click.Choice(["confluent", "aws", "snowflake"]),
    help="Only the resources of this cloud. Those of the others are read, and not changed.",
)

rotation_options = _all(
    click.option("--day-count", type=click.FloatRange(min=0), help="The age in days at which a key is replaced."),
    click.option(
        "--number-of-api-keys-to-retain",
        "retained",
        type=click.IntRange(min=1),
        help="Number of Confluent API keys per account that stay valid.",
    ),
)
"""The options of the rotation policy, which have the names of the Terraform kickstarter."""


def declared_config(environment: str, profile: str | None) -> Config:
    """Return lakehouse.yaml, and let clients of AWS use a profile, also those that other libraries create."""
    if profile:
        os.environ["AWS_PROFILE"] = profile
    return loader.load(environment=environment)


def administrator_credentials(environment: str, profile: str | None, **options: Any) -> CloudCredentials:
    from resources.build import lazy_resource

    declared = declared_config(environment, profile)
    return CloudCredentials(
        declared.deployment(environment),
        confluent_key=options["confluent_api_key"],
        confluent_secret=_confluent_secret(options["confluent_api_key"]),
        confluent_url=options["confluent_url"],
        admin_secret=options["admin_secret"],
        warehouse=options["snowflake_warehouse"],
        environment=environment,
        rest_catalog=lazy_resource(declared, environment, "rest_catalog"),
    )


def _confluent_secret(api_key: str) -> str:
    """Return the secret of a Confluent Cloud API key.

    It is not an option, because every user of the machine can read the arguments of a process, and shells store them.
    """
    secret = os.environ.get("CONFLUENT_CLOUD_API_SECRET", "")
    if api_key and not secret and sys.stdin.isatty():
        secret = click.prompt(f"Secret of the Confluent Cloud API key {api_key}", hide_input=True)
    return secret


def resources_of(credentials: CloudCredentials) -> list[Resource[Any]]:
    from lakehouse.deploy.graph import deployment_resources

    return deployment_resources(loader.load(environment=credentials.environment), credentials)


def explained(debug: bool) -> AbstractContextManager[None]:
    """Add the notes of an error to its message and, with --debug, print its traceback."""

    def failure(error: LakehouseError) -> click.ClickException:
        if debug:
            click.echo(visible("".join(traceback.format_exception(error))), err=True)
        notes = " ".join(getattr(error, "__notes__", ()))
        return click.ClickException(f"{error}\n{notes}" if notes else str(error))

    return translate({LakehouseError: failure})
