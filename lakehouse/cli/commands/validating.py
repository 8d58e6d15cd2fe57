"""The command `lakehouse validate`."""

import warnings

import click
import dagster as dg
from rich.console import Console

from lakehouse.config import loader
from lakehouse.config.sources.derived import Derived
from lakehouse.config.validation import check_column_faults
from lakehouse.core.text.terminal import echo
from lakehouse.definitions import defs


@click.command()
def validate() -> None:
    """Load lakehouse.yaml, its transforms and the Dagster definitions without contacting any system.

    Run the command in CI on every change of lakehouse.yaml: every error has its line and the remedy.

    \b
    Exit code 0: the configuration is valid. 1: it is not.
    """
    validations: list[loader.Validation] = [check_column_faults]
    try:
        from lakehouse.local.check_syntax import syntax_faults

        validations.append(syntax_faults)
    except ModuleNotFoundError:
        note = "SQL and patterns of checks were not parsed, because they need Java. Install lakehouse[local]"
        echo(f"Note: {note}, which contains it", err=True)
    # Only terminals show the progress: logs of build servers contain the errors alone.
    with Console(stderr=True).status("Parsing SQL and patterns of checks") as progress:
        declared = loader.load(validations=validations)
        if derived := [topic for topic in declared.topics.values() if isinstance(topic.source, Derived)]:
            progress.update("Importing transforms")
            # It loads Spark's client and Iceberg, which take longer than the command without transforms.
            from lakehouse.pipeline.derivation import transform

            for topic in derived:
                transform(declared, topic)
        progress.update("Loading the Dagster definitions")
        loaded = defs()
        with warnings.catch_warnings():
            # Dagster copies sensors that start a job, and the copy warns of Dagster's own argument `owners`.
            warnings.simplefilter("ignore", dg.BetaWarning)
            dg.Definitions.validate_loadable(loaded)
        graph = loaded.resolve_asset_graph()
    echo(f"{len(graph.get_all_asset_keys()):,} assets, {len(graph.asset_check_keys):,} checks")
