"""Page of all keys of lakehouse.yaml, from its JSON Schema and the fields of the resources."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo

from lakehouse.config.environment import SYSTEMS
from lakehouse.config.model import Config
from resources.build import system
from resources.client_settings import ClientSetting, SettingsOfClient
from tools.reference.markdown import code, page, table

Schema = Mapping[str, Any]

_INTRODUCTION = """\
Editors complete and check lakehouse.yaml by its [JSON Schema](../lakehouse.schema.json). `lakehouse validate` checks a
file and reports every error with its line. A value written `{env: NAME}` is read from an environment variable; secrets
must be written this way. A key without a default is required.
"""
_ENVIRONMENTS = """\
## Environments

Each entry of `environments` has the systems `kafka`, `schema_registry`, `spark` and `catalog`, and those of the others
that you use. Without a reader, such as `glue`, `snowflake` or `rest_catalog`, the topics have no assets and checks of
it. `snowflake` needs `glue`, in which it finds the tables.
"""
_HEADER = ["key", "type", "default", "meaning"]


def json_schema() -> str:
    """Return the JSON Schema of lakehouse.yaml, for editors."""
    schema = Config.model_json_schema()
    for model in (schema, schema["$defs"]["Topic"], schema["$defs"]["Route"]):
        model["properties"] = {k: v for k, v in model["properties"].items() if not v.get("readOnly")}
    environments = schema["properties"]["environments"]
    environments["anyOf"] = [
        {"type": environments.pop("type"), "additionalProperties": environments.pop("additionalProperties")},
        {"type": "string", "description": "File of the environments, beside lakehouse.yaml."},
    ]
    return json.dumps(schema, indent=2) + "\n"


def configuration() -> str:
    """Return the page."""
    schema = json.loads(json_schema())
    models: dict[str, Schema] = schema["$defs"]
    topic, route = models["Topic"], models["Route"]
    sources = list(topic["properties"]["source"]["discriminator"]["mapping"].items())
    checks = list(topic["properties"]["checks"]["additionalProperties"]["discriminator"]["mapping"].items())
    existing = models["ExistingObjects"]
    only_in_routes = route["properties"].keys() - topic["properties"].keys()
    return page(
        "Configuration keys",
        _INTRODUCTION,
        f"## Top level\n\n{_table(schema)}",
        f"## Topics\n\nEach entry of `topics`. {topic['description']}\n\n{_table(topic)}",
        f"## Routes\n\n{route['description']} A route has the keys of a topic, and these:\n\n"
        + _table(route, only_in_routes),
        "## Sources\n\nThe key `source` of a topic, by its `type`.",
        *_variants(models, sources),
        "## Checks\n\nEach entry of `checks` of a topic, by its `type`.",
        *_variants(models, checks),
        f"## Metadata\n\nThe key `metadata` of a topic.\n\n{_table(models['Metadata'])}",
        f"## Retention\n\nThe key `retention` of a topic. {models['Retention']['description']}\n\n"
        + _table(models["Retention"]),
        _ENVIRONMENTS,
        *(f"### {name}\n\n{_summary(system(name))}\n\n{_fields(system(name))}{_settings(name)}" for name in SYSTEMS),
        f"## Deployments\n\n{models['Deployment']['description']}\n\n{_table(models['Deployment'])}",
        *(
            f"### {key}\n\nThe key `{key}` of a deployment. {model['description']}\n\n{_table(model)}"
            for key, model in (("existing", existing), ("rotation", models["Rotation"]))
        ),
    )


def _variants(models: Mapping[str, Schema], mapping: list[tuple[str, str]]) -> Iterator[str]:
    for name, reference in mapping:
        model = models[reference.rpartition("/")[2]]
        keys = model["properties"].keys() - {"type"}
        yield f"### {name}\n\n{model['description']}\n\n{_table(model, keys) if keys else ''}"


def _table(model: Schema, keys: set[str] | None = None) -> str:
    required = model.get("required", ())
    rows = [
        [code(key), code(_type(value)), "" if key in required else _default(value), value.get("description", "")]
        for key, value in model["properties"].items()
        if keys is None or key in keys
    ]
    return table(_HEADER, rows)


def _type(value: Schema) -> str:
    if "enum" in value:
        return ", ".join(map(str, value["enum"]))
    if "$ref" in value:
        return str(value["$ref"]).rpartition("/")[2].rpartition("__")[2]
    if options := value.get("anyOf") or value.get("oneOf"):
        return " or ".join(dict.fromkeys(_type(option) for option in options if option.get("type") != "null"))
    if value.get("type") == "array":
        return f"list of {_type(value.get('items', {}))}"
    if value.get("type") == "object" and isinstance(value.get("additionalProperties"), dict):
        return f"{{name: {_type(value['additionalProperties'])}}}"
    return str(value.get("const", value.get("type", "any")))


def _default(value: Schema) -> str:
    default = value.get("default")
    return (
        "" if default in (None, "", [], {}) else code(json.dumps(default) if not isinstance(default, str) else default)
    )


def _summary(cls: type) -> str:
    return (cls.__doc__ or "").strip().partition("\n\n")[0]


def _fields(cls: Any) -> str:
    fields: Mapping[str, FieldInfo] = cls.model_fields
    rows = []
    for name, field in fields.items():
        default = "" if field.is_required() or field.default in (None, "", (), {}) else code(field.default)
        rows.append([code(name), code(_annotation(field.annotation)), default, field.description or ""])
    return table(_HEADER, rows)


def _settings(name: str) -> str:
    """Return the table of settings of the client that a system has; empty if it has none."""
    of_client: SettingsOfClient | None = getattr(system(name), "CLIENT_SETTINGS", None)
    if of_client is None:
        return ""
    rows = [
        [code(key), setting.form.text if setting.form else "text", setting.text + _only_reference(setting)]
        for key, setting in of_client.known.items()
    ]
    return f"\n\nThe key `settings` of `{name}`:\n\n{table(['setting', 'value', 'meaning'], rows)}"


def _only_reference(setting: ClientSetting) -> str:
    return " Only as `{env: NAME}`." if setting.is_secret else ""


def _annotation(annotation: Any) -> str:
    if get_origin(annotation) is dict:
        return f"{{name: {_annotation(get_args(annotation)[1])}}}"
    options = [option for option in get_args(annotation) if option is not type(None)]
    if not options:
        return str(getattr(annotation, "__name__", annotation))
    separator = ", " if isinstance(options[0], str) else " or "
    return separator.join(option if isinstance(option, str) else _annotation(option) for option in options)
