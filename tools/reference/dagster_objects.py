"""Page of assets, checks, sensors, schedules and jobs, as Dagster loads them from lakehouse.yaml."""

from __future__ import annotations

from collections.abc import Iterable

from dagster import AssetKey

from lakehouse.definitions import defs
from tools.reference.markdown import code, page, table

_INTRODUCTION = """\
These are the Dagster objects of the lakehouse.yaml in this repository, in the environment `local`. `<topic>` is the
name of an entry of `topics`; the assets of a route are partitioned by topic. A check that a topic declares has the
name of its entry in `checks`.
"""


def dagster_objects() -> str:
    """Return the page."""
    definitions = defs()
    repository = definitions.get_repository_def()
    graph = repository.asset_graph
    declared = definitions.resolve_asset_graph()
    names = {key.path[-1] for key in graph.get_all_asset_keys() if key.path[0] == "kafka"}
    assets = {_generic(key, names): graph.get(key).kinds for key in sorted(graph.get_all_asset_keys())}
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
