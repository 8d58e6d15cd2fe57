"""`lakehouse deploy`: the cloud set-up as commands."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import click

from lakehouse.core.errors import ConfigError, LakehouseError, translate
from lakehouse.deploy.credentials import ADMIN_SECRET, Access
from resources.confluent import URL

if TYPE_CHECKING:
    from lakehouse.deploy.planner import Action
    from lakehouse.deploy.step import Step

SIGNS = {"create": "+", "change": "~", "delete": "-", "keep": "=", "absent": " ", "unknown": "?"}


@click.group(short_help="Set up the clouds: plan, create, delete, rotate.")
def deploy() -> None:
    """Set up Confluent Cloud, AWS and Snowflake as lakehouse.yaml says (`deployments`), and take it all away again.

    \b
    Before anything:      lakehouse deploy doctor --env aws
    What would be done:   lakehouse deploy plan --env aws
    Do it, or go on:      lakehouse deploy create --env aws
    New keys:             lakehouse deploy rotate --env aws
    Take it away:         lakehouse deploy delete --env aws

    There is no state file: everything is found again by its name and tag, so a command that was interrupted is simply
    run again. docs/cloud.md leads through a first deployment.
    """


def _options(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(
        [
            click.option("--env", "environment", required=True, help="Environment of lakehouse.yaml."),
            click.option("--profile", help="AWS profile. Without, what AWS's tools find (AWS_PROFILE, …)."),
            click.option(
                "--confluent-api-key",
                envvar="CONFLUENT_CLOUD_API_KEY",
                show_envvar=True,
                default="",
                help="Its secret is read from CONFLUENT_CLOUD_API_SECRET, or asked for on a terminal.",
            ),
            click.option("--confluent-url", envvar="CONFLUENT_CLOUD_URL", default=URL, hidden=True),
            click.option(
                "--snowflake-warehouse",
                envvar="LAKEHOUSE_SNOWFLAKE_WAREHOUSE",
                help="Use this warehouse, which is there, instead of making one.",
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
            click.option("--debug", is_flag=True, help="Show where an error came from."),
        ]
    ):
        command = option(command)
    return command


def _entered(debug: bool, **given: Any) -> Access:
    access = _access(**given)
    access.check_account()
    return access


def _check_account_if_asked(access: Access) -> None:
    """That AWS cannot be asked is said of its steps; that it answers for another account is an error as elsewhere."""
    try:
        access.check_account()
    except ConfigError:
        raise
    except LakehouseError:
        pass


def _access(environment: str, **given: Any) -> Access:
    from lakehouse.config import loader
    from resources.build import opener

    # Every client then finds it, also those that others make.
    if given["profile"]:
        os.environ["AWS_PROFILE"] = given["profile"]
    declared = loader.load()
    return Access(
        declared.deployment(environment),
        confluent_key=given["confluent_api_key"],
        confluent_secret=_confluent_secret(given["confluent_api_key"]),
        confluent_url=given["confluent_url"],
        admin_secret=given["admin_secret"],
        warehouse=given["snowflake_warehouse"],
        rest_catalog=opener(declared, environment, "rest_catalog"),
    )


def _confluent_secret(api_key: str) -> str:
    """Return the secret of a Confluent Cloud API key.

    It is no option: every user of the machine can read the arguments of a process, and a shell keeps them in a file.
    """
    secret = os.environ.get("CONFLUENT_CLOUD_API_SECRET", "")
    if api_key and not secret and sys.stdin.isatty():
        secret = click.prompt(f"Secret of the Confluent Cloud API key {api_key}", hide_input=True)
    return secret


def _steps(access: Access) -> list[Step]:
    from lakehouse.config import loader
    from lakehouse.deploy.steps import deployment_steps

    return deployment_steps(loader.load(), access)


@deploy.command(short_help="Show what `create` would do.")
@_options
def plan(debug: bool, **given: Any) -> None:
    """Show what `create` would make or change, and why. Nothing is changed.

    A cloud that cannot be asked, for want of credentials or because it does not answer, hides no other: its steps are
    marked `?`, with the reason, and the exit code is 1.
    """
    from lakehouse.deploy import planner

    with _explained(debug):
        access = _access(**given)
        _check_account_if_asked(access)
        actions = list(planner.survey(_steps(access)))
    _show(actions)
    raise SystemExit(1 if any(action.verb == "unknown" for action in actions) else 0)


@deploy.command(short_help="Make what is missing, change what differs.")
@_options
@click.option("--yes", is_flag=True, help="Do not ask.")
def create(debug: bool, yes: bool, **given: Any) -> None:
    """Make what is missing and change what differs, in order. Interrupted anywhere, run it again: it goes on."""
    from lakehouse.deploy import planner

    with _explained(debug):
        steps = _steps(_entered(debug=debug, **given))
        actions = list(planner.plan(steps))
        if not _show(actions):
            return
        if not yes:
            click.confirm("Do it?", abort=True)
        planner.create(steps, _tell)


@deploy.command(short_help="Take everything away, data only if told.")
@_options
@click.option("--yes", is_flag=True, help="Do not ask for the deployment's name.")
@click.option("--delete-data", is_flag=True, help="Delete tables and files, too. They cannot be had back.")
def delete(debug: bool, yes: bool, delete_data: bool, **given: Any) -> None:
    """Take away what belongs to the deployment, and nothing else. Data stays unless --delete-data is given."""
    from lakehouse.deploy import planner

    with _explained(debug):
        access = _entered(debug=debug, **given)
        steps = _steps(access)
        actions = list(planner.plan_deletion(steps, delete_data=delete_data))
        if not _show(actions):
            return
        name = access.deployment.name
        if not yes and click.prompt(f"Write the deployment's name ({name}) to delete it", default="") != name:
            raise click.ClickException("That is not its name. Nothing was deleted")
        planner.delete(steps, _tell, delete_data=delete_data)


@deploy.command(short_help="Replace keys that are old enough.")
@_options
@click.option("--day-count", default=30.0, show_default=True, help="How many days old a key becomes.")
@click.option(
    "--number-of-api-keys-to-retain",
    "retained",
    default=2,
    show_default=True,
    type=click.IntRange(min=1),
    help="How many of Confluent's keys of an account go on working.",
)
@click.option("--grace-days", default=1.0, show_default=True, help="How many days a replaced key goes on working.")
def rotate(debug: bool, day_count: float, retained: int, grace_days: float, **given: Any) -> None:
    """Replace Confluent's API keys and Snowflake's key pair when they are old enough; finish what was begun.

    Nothing that runs fails meanwhile. Interrupted anywhere, run it again. `--day-count 0` replaces all keys now.
    """
    from lakehouse.deploy.rotation import Policy, rotate

    with _explained(debug):
        for said in rotate(_steps(_entered(debug=debug, **given)), Policy(day_count, retained, grace_days)):
            click.echo(said)


@deploy.command(short_help="Prove credentials and permissions, before anything is made.")
@_options
def doctor(debug: bool, **given: Any) -> None:
    """Prove that all three clouds can be entered, and that what `create` does is allowed. Nothing is changed."""
    from lakehouse.config import loader
    from lakehouse.deploy.doctor import examine
    from lakehouse.local import show

    with _explained(debug):
        findings = examine(_access(**given), loader.load())
    show.findings(findings)
    raise SystemExit(0 if all(finding.ok for finding in findings) else 1)


@deploy.command(short_help="Print the environment's settings for lakehouse.yaml.")
@_options
def environment(debug: bool, **given: Any) -> None:
    """Print the settings that lead to the deployment, to be written under `environments` in lakehouse.yaml.

    They name secrets in AWS Secrets Manager, and hold none.
    """
    import yaml

    from lakehouse.deploy.settings import settings

    with _explained(debug):
        access = _access(**given)
        click.echo(yaml.safe_dump({given["environment"]: settings(access.names, access.warehouse)}, sort_keys=False))


def _show(actions: Sequence[Action]) -> bool:
    """Print what is to be done; whether that is anything."""
    for action in actions:
        if action.verb != "absent":
            click.echo(f"{SIGNS[action.verb]} {action.step.what}: {action.why}")
    counts = {verb: sum(action.verb == verb for action in actions) for verb in ("create", "change", "delete", "keep")}
    told = [f"{n} to {verb}" for verb, n in counts.items() if n]
    if unknown := sum(action.verb == "unknown" for action in actions):
        told.append(f"{unknown} unknown")
    click.echo(", ".join(told) or "Nothing is there")
    return any(counts[verb] for verb in ("create", "change", "delete"))


def _tell(action: Action) -> None:
    if action.verb in ("create", "change", "delete"):
        took = "…" if action.seconds is None else f"done in {action.seconds:.1f} s"
        click.echo(f"{SIGNS[action.verb]} {action.step.what} {took}")


def _explained(debug: bool) -> AbstractContextManager[None]:
    """Add the step to an error's message and, with --debug, print where it came from."""

    def failure(error: LakehouseError) -> click.ClickException:
        if debug:
            click.echo("".join(traceback.format_exception(error)), err=True)
        notes = " ".join(getattr(error, "__notes__", ()))
        return click.ClickException(f"{error}\n{notes}" if notes else str(error))

    return translate({LakehouseError: failure})
