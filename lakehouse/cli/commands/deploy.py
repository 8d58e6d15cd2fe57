"""The commands `lakehouse deploy`: the cloud set-up."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import click
import dagster as dg
import yaml

from lakehouse.cli import console
from lakehouse.cli.commands.deploy_options import (
    administrator_credentials,
    administrator_options,
    common_options,
    declared_config,
    explained,
    only_option,
    resources_of,
    rotation_options,
)
from lakehouse.config import loader
from lakehouse.core.errors import ConfigError, LakehouseError
from lakehouse.core.terminal import echo, visible
from lakehouse.deploy import planner
from lakehouse.deploy.credentials import CloudCredentials, RotationCredentials
from lakehouse.deploy.drawing import FORMATS
from lakehouse.deploy.planner import Action, Change, OneCloud
from lakehouse.deploy.resource import Outputs, Resource
from lakehouse.deploy.settings import settings_of

SIGNS: dict[Action, str] = {
    "create": "+",
    "update": "~",
    "no-op": "=",
    "delete": "-",
    "retain": "=",
    "absent": " ",
    "unknown": "?",
}
CHANGING: dict[Action, str] = {"create": "to create", "update": "to change", "delete": "to delete"}
"""Labels, in the summary, of the actions that change a resource."""


@click.group()
def deploy() -> None:
    """Create the resources in Confluent Cloud, AWS and Snowflake that lakehouse.yaml declares under `deployments`.

    \b
    Check credentials first:    lakehouse deploy doctor --env aws
    Show the changes:           lakehouse deploy plan --env aws
    Draw the resources:         lakehouse deploy graph --env aws
    Make or resume changes:     lakehouse deploy create --env aws
    Verify each permission:     lakehouse deploy verify --env aws
    Replace old keys:           lakehouse deploy rotate --env aws
    Delete everything:          lakehouse deploy delete --env aws

    There is no state file: resources are identified by name and tag, so an interrupted command can simply be run again.
    docs/cloud.md explains a first deployment.
    """


def _checked_credentials(debug: bool, **options: Any) -> CloudCredentials:
    credentials = administrator_credentials(**options)
    credentials.check_account()
    return credentials


def _check_account_if_reachable(credentials: CloudCredentials) -> None:
    """Refuse credentials of another account. Connection errors are ignored: the plan reports them by resource."""
    try:
        credentials.check_account()
    except ConfigError:
        raise
    except LakehouseError:
        pass


@deploy.command(short_help="Show the changes that `create` would make.")
@administrator_options
@only_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan(debug: bool, only: str | None, as_json: bool, **options: Any) -> None:
    """Show the resources that `create` would create or update, and the reasons. Nothing is changed.

    The resources of a cloud that is unreachable or refuses the credentials are marked `?`, with the reason, and so are
    those that wait for a resource of another cloud if `--only` is given.

    \b
    Exit code 0: the plan is complete. 1: a cloud could not be read, or resources wait for another cloud.
    """
    changes = _planned(debug, only, **options)
    if as_json:
        values = [{"resource": one.resource.address, "action": one.action, "reason": one.reason} for one in changes]
        echo(json.dumps(values, indent=2))
    else:
        _show(changes)
    raise SystemExit(1 if any(change.action == "unknown" for change in changes) else 0)


def _one_cloud(credentials: CloudCredentials, only: str) -> OneCloud:
    return OneCloud(only, resources_of(credentials), credentials.environment)


def _planned(debug: bool, only: str | None = None, **options: Any) -> list[Change]:
    """Return the plan of all resources or one cloud's, with `unknown` for those of a cloud that cannot be read."""
    with explained(debug):
        credentials = administrator_credentials(**options)
        _check_account_if_reachable(credentials)
        return list(_one_cloud(credentials, only).plan() if only else planner.plan_reachable(resources_of(credentials)))


@deploy.command(short_help="Draw the resources and their dependencies.")
@administrator_options
@click.option(
    "--format",
    "language",
    type=click.Choice(["mermaid", "dot"]),
    default="mermaid",
    show_default=True,
    help="`mermaid` for Markdown files and https://mermaid.live, `dot` for Graphviz.",
)
def graph(debug: bool, language: str, **options: Any) -> None:
    """Draw the deployment's resources by cloud, with their dependencies and the action of `create` for each.

    Resources that exist as declared have no mark. A resource is marked `unknown` if its cloud cannot be read. Nothing
    is changed.

    \b
    In a Markdown file:   lakehouse deploy graph --env aws
    As a picture:         lakehouse deploy graph --env aws --format dot | dot -Tsvg -o deployment.svg
    """
    click.echo(FORMATS[language](_planned(debug, **options)))


@deploy.command(short_help="Create missing resources and update changed ones.")
@administrator_options
@only_option
@rotation_options
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def create(
    debug: bool, only: str | None, day_count: float | None, retained: int | None, yes: bool, **options: Any
) -> None:
    """Create missing resources and update those that differ, in order. An interrupted `create` can be run again.

    With `--day-count` or `--number-of-api-keys-to-retain`, keys are then rotated as by `lakehouse deploy rotate`.
    """
    if only and (day_count is not None or retained is not None):
        raise click.UsageError("Keys of all clouds are rotated together. Nothing was changed. Omit --only")
    with explained(debug):
        credentials = _checked_credentials(debug=debug, **options)
        resources, one = resources_of(credentials), _one_cloud(credentials, only) if only else None
        if _show(list(one.plan() if one else planner.plan(resources))) and not yes:
            click.confirm("Make these changes?", abort=True)
        one.apply(_report) if one else planner.apply(resources, _report)
        if day_count is not None or retained is not None:
            replace_keys(credentials, resources, day_count, retained)


@deploy.command(short_help="Replace old keys.")
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


@deploy.command(short_help="Delete the resources, and data only on request.")
@administrator_options
@only_option
@click.option("--yes", is_flag=True, help="Do not ask for the deployment's name.")
@click.option("--delete-data", is_flag=True, help="Also delete tables and files. They cannot be recovered.")
def delete(debug: bool, only: str | None, yes: bool, delete_data: bool, **options: Any) -> None:
    """Delete the resources of the deployment, and nothing else. Data is retained unless --delete-data is given.

    The plan is shown first, and confirmed by the deployment's name unless --yes is given. `--only` refuses to delete
    what resources in the other clouds need: delete AWS last.
    """
    with explained(debug):
        credentials = _checked_credentials(debug=debug, **options)
        resources, one = resources_of(credentials), _one_cloud(credentials, only) if only else None
        planned = one.plan_destroy if one else partial(planner.plan_destroy, resources)
        if not _show(list(planned(delete_data=delete_data))):
            return
        name = credentials.deployment.name
        if not yes and click.prompt(f"Enter the deployment's name ({name}) to delete it", default="") != name:
            raise click.ClickException("The name does not match. Nothing was deleted")
        destroy = one.destroy if one else partial(planner.destroy, resources)
        destroy(_report, delete_data=delete_data)


@deploy.command(short_help="Check credentials, and permissions in AWS.")
@administrator_options
def doctor(debug: bool, **options: Any) -> None:
    """Check that all three clouds accept the credentials, and that AWS permits what `create` does. Nothing is changed.

    The roles of the key's account in Confluent Cloud are not checked. In Snowflake, the login has the role
    ACCOUNTADMIN.

    \b
    Exit code 0: every check passed. 1: a check failed; its remedy is printed.
    """
    from lakehouse.deploy.cloud_doctor import examine

    with explained(debug):
        credentials = administrator_credentials(**options)
        diagnostics = examine(credentials, loader.load(environment=credentials.environment))
    console.report(diagnostics)


@deploy.command(short_help="Make the lakehouse's calls and report each permission.")
@administrator_options
def verify(debug: bool, **options: Any) -> None:
    """Make the calls of the running lakehouse with each role of the deployment, and print a line for each permission.

    A table `lakehouse_canary` is written, registered, read by Athena and Snowflake, and removed. No other table is
    touched. Run it after the first `create` and after the environment is configured, with a --profile that is in
    `spark_principals`, and again with one that is in `rotation_principals`, which also reads all that the identities of
    the rotation own in Confluent Cloud and Snowflake.

    \b
    Exit code 0: nothing is missing. 1: a permission is missing, or a call failed.
    """
    from lakehouse.deploy.verification.verify import SYSTEMS, Verification
    from resources.build import build_resources

    with explained(debug):
        credentials = _checked_credentials(debug=debug, **options)
        config = loader.load(environment=credentials.environment)
        systems = build_resources(config, credentials.environment)
        outcomes: list[str] = []
        with dg.build_resources({name: systems[name] for name in SYSTEMS if name in systems}) as clients:
            for finding in Verification(config, credentials, clients).run():
                outcomes.append(finding.outcome)
                reason = f": {finding.reason}" if finding.reason else ""
                click.echo(visible(f"{finding.outcome:<9} {finding.role}: {finding.permission}{reason}"))
    click.echo(", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in dict.fromkeys(outcomes)))
    raise SystemExit(1 if {"denied", "failed"} & {*outcomes} else 0)


@deploy.command(short_help="Print the environment's settings for lakehouse.yaml.")
@administrator_options
def environment(debug: bool, **options: Any) -> None:
    """Print the settings of the deployment's systems, to be written under `environments` in lakehouse.yaml.

    They name secrets in AWS Secrets Manager and contain none.

    \b
      lakehouse deploy environment --env aws
    """
    with explained(debug):
        credentials = administrator_credentials(**options)
        environment = settings_of(
            credentials.deployment, credentials.names, loader.load(environment=credentials.environment)
        )
        click.echo(yaml.safe_dump({options["environment"]: environment}, sort_keys=False))


def _show(changes: Sequence[Change]) -> bool:
    """Print a plan and return whether it changes anything."""
    for change in changes:
        if change.action != "absent":
            click.echo(visible(f"{SIGNS[change.action]} {change.resource.label}: {change.reason}"))
    actions = [change.action for change in changes]
    counts = {words: actions.count(action) for action, words in CHANGING.items()}
    unchanged = actions.count("no-op") + actions.count("retain")
    summary = counts | {"to keep": unchanged, "unknown": actions.count("unknown")}
    click.echo(", ".join(f"{n} {words}" for words, n in summary.items() if n) or "No resources exist")
    return any(counts.values())


def _report(change: Change) -> None:
    if change.action in CHANGING:
        progress = "…" if change.seconds is None else f"done in {change.seconds:.1f} s"
        click.echo(f"{SIGNS[change.action]} {change.resource.label} {progress}")
