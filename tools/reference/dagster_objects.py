"""Page of assets, checks, sensors, schedules and jobs, as Dagster loads them from a file with every kind of entry."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dagster import AssetKey

from lakehouse.config.loader import load
from lakehouse.definitions import definitions_of
from tools.reference.markdown import code, page, table

_INTRODUCTION = """\
These are all Dagster objects, from a [lakehouse.yaml](../../tools/reference/every_object.yaml) with one entry of each
kind. `<topic>` is the name of an entry of `topics` or `routes`; the assets of a route are partitioned by topic. A topic
has only the assets and checks of its settings: `<topic>/dead_letters` requires `errors: log`, `<topic>/glue`,
`<topic>/snowflake` and `<topic>/rest` the systems `glue`, `snowflake` and `rest_catalog`, checks of Confluent Cloud the
system `confluent_cloud`, and `streaming` requires `continuous: true`. Without `snowflake`, `<topic>/glue` has the check
`engines_agree`, and without both, `<topic>/rest` has it. A check that a topic declares has the name of its entry in
`checks`, here `declared_check`.
"""
_CONFIGURATION = Path(__file__).with_name("every_object.yaml")


def dagster_objects() -> str:
    """Return the page."""
    definitions = definitions_of(load(_CONFIGURATION))
    repository = definitions.get_repository_def()
    graph = repository.asset_graph
    declared = definitions.resolve_asset_graph()
    names = {key.path[0] for key in graph.get_all_asset_keys() if key.path[-1] == "kafka"}
    assets: dict[str, set[str]] = {}
    for key in sorted(graph.get_all_asset_keys()):
        assets.setdefault(_generic(key, names), set()).update(graph.get(key).kinds)
    checks: dict[tuple[str, str], str] = {}
    for key in sorted(declared.asset_check_keys, key=str):
        check = declared.get_check_spec(key)
        checks.setdefault((_generic(key.asset_key, names), key.name), check.description or "")
    return page(
        "Assets, checks, sensors and jobs",
        _INTRODUCTION,
        "## Assets",
        table(["asset", "kinds"], ([code(name), ", ".join(sorted(kinds))] for name, kinds in assets.items())),
        "## Asset checks",
        table(["asset", "check", "passes when"], ([code(a), code(c), text] for (a, c), text in sorted(checks.items()))),
        "## Sensors",
        _named((sensor.name, sensor.description) for sensor in repository.sensor_defs),
        "## Schedules",
        table(
            ["schedule", "cron", "job"],
            ([code(s.name), code(s.cron_schedule), code(s.job_name)] for s in repository.schedule_defs),
        ),
        "## Jobs",
        _named((job.name, job.description) for job in repository.get_all_jobs() if not job.name.startswith("__")),
    )


def _generic(key: AssetKey, names: set[str]) -> str:
    return "/".join("<topic>" if part in names else part for part in key.path)


def _named(objects: Iterable[tuple[str, str | None]]) -> str:
    return table(["name", "description"], ([code(name), text or ""] for name, text in sorted(objects)))
