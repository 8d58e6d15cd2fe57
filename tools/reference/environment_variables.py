"""Page of environment variables: those of this project, and those that a new project's environments name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from lakehouse.deploy.credentials import ADMIN_SECRET
from tools.reference.markdown import code, page, table
from tools.repository import PROJECT

ENVIRONMENTS = PROJECT / "lakehouse/config/starter/environments.yaml"

_INTRODUCTION = """\
An empty value of a variable `LAKEHOUSE_…` counts as none. The libraries of AWS, Confluent, Snowflake and Dagster read
further variables, such as `AWS_PROFILE` and `HTTPS_PROXY`: see their documentation.
"""
_NAMED = """\
## Variables that lakehouse.yaml names

A project chooses these names: `{env: NAME, default: VALUE}` in an environment reads the variable `NAME`. Secrets must
be read in this way. The following ones are those of a project that `lakehouse init` creates. `lakehouse up` sets those
of the embedded stack.
"""
_INTERNAL = """\
## Variables of the project's own processes

The embedded stack and runs set these for the processes that they start. Do not set them.
"""


@dataclass(frozen=True)
class Variable:
    """A variable that the code reads by its own name."""

    name: str
    meaning: str
    default: str = ""
    is_internal: bool = False


VARIABLES: Sequence[Variable] = (
    Variable(
        "LAKEHOUSE_CONFIG",
        "The configuration; `lakehouse --config` sets it.",
        "the nearest lakehouse.yaml in the current folder and those above it",
    ),
    Variable("LAKEHOUSE_ENV", "The environment in use; `lakehouse --env` sets it.", "`local`, the embedded stack"),
    Variable(
        "LAKEHOUSE_HOME",
        "The folder of the embedded stack's state and of logs.",
        "`.lakehouse` beside the configuration",
    ),
    Variable(
        "LAKEHOUSE_LOG_FORMAT",
        "`json` for logs and errors as JSON, also in runs; `lakehouse --log-format` sets it.",
        "`text`",
    ),
    Variable("LAKEHOUSE_CACHE", "The folder of downloaded jars.", "the user's cache folder of the operating system"),
    Variable("LAKEHOUSE_MAVEN_URL", "A mirror of Maven Central, for the jars.", "Maven Central"),
    Variable(
        "LAKEHOUSE_PASS_ENV",
        "Names of further variables that the user's transforms need, separated by commas. Servers inherit no others.",
        "none",
    ),
    Variable(
        "LAKEHOUSE_ALLOWED_HOSTS",
        "Hosts under which browsers reach the UI by a tunnel, as `host` or `host:port`, separated by commas.",
        "the loopback interface alone",
    ),
    Variable("LAKEHOUSE_UI_URL", "The address of Dagster's UI in messages; `lakehouse up` sets it.", "no links"),
    Variable(
        "LAKEHOUSE_SNOWFLAKE_WAREHOUSE",
        "The existing warehouse that `lakehouse deploy` uses.",
        "it creates one",
    ),
    Variable(
        "LAKEHOUSE_ADMIN_SECRET",
        "Secret in AWS Secrets Manager with the key of Snowflake's administrator, for `lakehouse deploy`.",
        code(ADMIN_SECRET),
    ),
    Variable("CONFLUENT_CLOUD_API_KEY", "Id of a Cloud API key, for `lakehouse deploy`.", "none"),
    Variable("CONFLUENT_CLOUD_API_SECRET", "The secret of that key.", "a terminal prompts for it"),
    Variable("CONFLUENT_CLOUD_URL", "The address of Confluent Cloud's API.", "Confluent Cloud"),
    Variable("SNOWFLAKE_HOST", "The host of Snowflake, for `lakehouse deploy`.", "that of the account"),
    Variable("SNOWFLAKE_PORT", "Its port.", "that of HTTPS"),
    Variable("SNOWFLAKE_PROTOCOL", "`https`, or `http` for an emulator.", "`https`"),
    Variable("AWS_REGION", "The region of secrets, if the secret's name is no ARN.", "`AWS_DEFAULT_REGION`"),
    Variable("AWS_DEFAULT_REGION", "The region if `AWS_REGION` is not set.", "none"),
    Variable(
        "DAGSTER_HOME",
        "Dagster's instance, in which commands look for failed runs. `lakehouse up` sets it for its own.",
        "commands report no runs",
    ),
    Variable("DAGSTER_GRPC_TIMEOUT_SECONDS", "Seconds in which Dagster has to load the definitions.", "180"),
    Variable("TERM", "With `dumb`, terminals show no line about what a command waits for.", "set by the terminal"),
    Variable("ARROW_DEFAULT_MEMORY_POOL", "Arrow's allocator in the emulator of Snowflake.", "`system`"),
    Variable("LAKEHOUSE_SNAPSHOT", "The texts of the configuration with which a run started.", is_internal=True),
    Variable("LAKEHOUSE_UI_TOKEN", "The token of Dagster's UI.", is_internal=True),
    Variable("LAKEHOUSE_SERVER", "The name of a server of the embedded stack.", is_internal=True),
    Variable("LAKEHOUSE_PORTS", "Its ports.", is_internal=True),
    Variable("LAKEHOUSE_FINGERPRINT", "A digest of its settings: it is restarted if they change.", is_internal=True),
    Variable("SNOWFLAKE_ACCOUNT", "The account of the emulator of Snowflake.", is_internal=True),
    Variable("SNOWFLAKE_ADMIN_PASSWORD", "The password of its administrator.", is_internal=True),
)


def environment_variables() -> str:
    """Return the page."""
    rows = [[code(one.name), one.meaning, one.default] for one in VARIABLES if not one.is_internal]
    internal = [[code(one.name), one.meaning] for one in VARIABLES if one.is_internal]
    named: dict[str, list[tuple[str, str]]] = {}
    for name, key, default in _references(yaml.safe_load(ENVIRONMENTS.read_text())["local"]):
        named.setdefault(name, []).append((key, default))
    of_files = [
        [code(name), ", ".join(code(key) for key, _ in uses), uses[0][1]] for name, uses in sorted(named.items())
    ]
    return page(
        "Environment variables",
        _INTRODUCTION,
        table(["variable", "meaning", "default"], rows),
        _NAMED,
        table(["variable", "key of the environment", "default"], of_files),
        _INTERNAL,
        table(["variable", "meaning"], internal),
    )


def _references(value: Any, at: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield the name, the key and the default of each reference to a variable."""
    if isinstance(value, dict) and "env" in value:
        default = value.get("default")
        yield value["env"], at, "required" if default is None else code(default) or "empty"
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _references(part, f"{at}.{key}".lstrip("."))
