"""The commands before the first ingestion: `lakehouse init` and `lakehouse doctor`. They need no extra."""

import os
from collections.abc import Mapping
from pathlib import Path

import click

from lakehouse.cli import console
from lakehouse.config import loader
from lakehouse.config.discovery import LOCAL, environment_name
from lakehouse.config.new_project import KEYS, Servers


@click.command()
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(file_okay=False, path_type=Path))
@click.option("--kafka", metavar="HOST:PORT", help="Kafka's bootstrap servers.")
@click.option("--registry", metavar="URL", help="The schema registry.")
@click.option("--spark", metavar="sc://HOST:PORT", help="The Spark Connect server.")
@click.option(
    "--catalog", metavar="URI", help="The database of an Iceberg catalog, such as sqlite:////data/catalog.db."
)
@click.option("--warehouse", metavar="s3://BUCKET/PATH", help="Where new tables are.")
@click.option("--s3-endpoint", metavar="URL", help="An S3 that is not Amazon's.")
@click.option("--region", metavar="NAME", help="The AWS region.")
def init(folder: Path, **servers: str | None) -> None:
    """Create a project in DIR: lakehouse.yaml, its environments, an example of a transform, a test and a workflow.

    The environment is the embedded stack, which `lakehouse up` starts. With options for servers that exist, it is
    `dev`, and has their addresses only: see the configuration keys for logins. Existing files are never overwritten.

    \b
      lakehouse init shop
      lakehouse init shop --kafka broker:9092 --registry http://registry:8081 --spark sc://spark:15002
        --catalog postgresql://lake@database/lake --warehouse s3://bucket/lake
    """
    from lakehouse.cli.project import create

    chosen = Servers(**servers)
    for system, settings in (chosen.environments() or {}).get("dev", {}).items():
        _require_valid(system, settings)
    files = create(folder, chosen)
    click.echo(f"Wrote {len(files)} files to {folder.resolve()}: {', '.join(files)}")
    environment = " --env dev" if chosen.environments() else ""
    click.echo(f"Next: declare topics in lakehouse.yaml, and run `lakehouse{environment} validate`")


def _require_valid(system: str, settings: Mapping[str, str]) -> None:
    """Require that settings are no secrets and have the form of their keys, as every command does later."""
    # Resources of all systems, which a local project does not need.
    from resources.build import setting_faults
    from resources.client_settings import IN_FILE

    options = {key: f"--{option.replace('_', '-')}" for option, (of, key) in KEYS.items() if of == system}
    for (key, *_), fault in setting_faults(system, settings):
        if not fault.startswith(IN_FILE):
            raise click.BadParameter(f"Nothing was written: {fault}", param_hint=options[str(key)])
        place = (
            f"`{key}: {{env: NAME}}` below `{system}` in environments.yaml, and set the variable to the whole address"
        )
        problem = "the address has a password, which files must not contain. Nothing was written"
        raise click.BadParameter(f"{problem}. Omit the option, then write {place}", param_hint=options[str(key)])


@click.command()
@click.option("--env", "environment", help="Check this environment instead of the stack.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(environment: str | None, as_json: bool) -> None:
    """Check this machine and the stack, and print a remedy for each failure.

    In an environment other than `local`, by `--env` or LAKEHOUSE_ENV, log in to Kafka and the schema registry with each
    client: this process, Spark's driver and its executors, which read one record. Check the AWS credentials of this
    process if a system is in AWS, the roles that systems of the environment assume, that Spark's executors read a table
    with the role of ingestion, and that no derived topic or topic of dead letters has messages of another table, such
    as one of another environment. Compare the clocks of this machine, Spark and S3, and Spark's settings and jars with
    those that correctness rests on. If DAGSTER_HOME is set, also compare that instance of Dagster with the settings
    that runs need: concurrency pools, run monitoring, time limits and run retries.

    \b
    Exit code 0: every check passed. 1: a check failed.
    """
    if environment is None and environment_name() != LOCAL:
        environment = environment_name()
    if environment:
        from lakehouse.cli.dagster_doctor import examine_dagster
        from lakehouse.cli.login_doctor import examine_logins
        from lakehouse.cli.spark_doctor import examine_spark
        from lakehouse.cli.systems import open_clients
        from lakehouse.deploy.verification.role_diagnosis import examine
        from lakehouse.pipeline.bookmark_owners import examine_bookmarks

        os.environ["LAKEHOUSE_ENV"] = environment
        config = loader.load()
        with open_clients(config) as resources:
            diagnostics = [*examine_logins(config, resources), *examine(config, resources), *examine_spark(resources)]
            diagnostics += examine_bookmarks(config, resources)
        diagnostics += examine_dagster(config)
    else:
        from lakehouse.local import doctor
        from lakehouse.local.home import Home

        diagnostics = doctor.examine(Home.default())
    console.report(diagnostics, as_json=as_json)
