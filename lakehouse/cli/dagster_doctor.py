"""The part of `lakehouse doctor --env` that opens Dagster's instance."""

from collections.abc import Iterator

from assets.instance_diagnosis import SUBJECT, examine_instance, pools_of
from lakehouse.cli.instance import dagster_instance
from lakehouse.config.model import Config
from lakehouse.core.errors import Diagnostic, logged_reason
from lakehouse.definitions import definitions_of


def examine_dagster(config: Config) -> Iterator[Diagnostic]:
    """Yield the differences of the instance of DAGSTER_HOME from what runs need, or why nothing was compared."""
    try:
        with dagster_instance() as instance:
            diagnostics = [*examine_instance(instance, pools_of(definitions_of(config)))] if instance else []
    # Its storage may be of any library.
    except Exception as error:
        remedy = "Correct dagster.yaml, its variables or its database"
        yield Diagnostic(SUBJECT, False, logged_reason("Dagster's instance was not examined", error), remedy)
        return
    if instance is None:
        observation = "not compared: DAGSTER_HOME is not set here. Run `lakehouse doctor` where Dagster's daemon runs"
        yield Diagnostic(SUBJECT, True, observation)
    yield from diagnostics
