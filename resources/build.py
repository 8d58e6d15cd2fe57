"""Dagster resources of an environment in lakehouse.yaml: each system's settings are the fields of its resource."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pkgutil import resolve_name
from typing import Any, TypeVar, get_args

import dagster as dg

from lakehouse.config.base import Fault, Location
from lakehouse.config.environment import SETTINGS, SYSTEMS, EnvRef, SettingValue, references
from lakehouse.config.loader import place
from lakehouse.config.model import Config
from lakehouse.core.errors import ConfigError
from lakehouse.core.registry import by_name
from lakehouse.core.text import did_you_mean
from resources.client_settings import SECRET, text_of
from resources.masked_field import is_secret

Client = TypeVar("Client")
VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::?-(.*))?\})")
"""A reference to a variable in the syntax of shells, which lakehouse.yaml does not have."""


def require_environment(config: Config, environment: str) -> None:
    """Require that an environment is declared.

    Raises:
        ConfigError: It is not. The message names those that are.
    """
    for _, fault in unknown_environment_faults(config, environment):
        raise ConfigError(fault)


def build_resources(config: Config, environment: str) -> dict[str, dg.ConfigurableResource]:
    """Return the resources of one environment.

    Environment variables are read at run time; only the defaults of unset ones apply here. A system without required
    settings may be omitted.
    """
    require_environment(config, environment)
    settings = config.environments[environment]
    names = [name for name, classes in SYSTEMS.items() if name in settings or not classes.is_optional]
    return {name: _build(config, environment, name) for name in names}


def unknown_environment_faults(config: Config, environment: str) -> list[Fault]:
    """Return the fault of an environment that is not declared; none if it is."""
    if environment in config.environments:
        return []
    known = [*config.environments]
    hint = did_you_mean(environment, known)
    fault = (
        f"Environment '{environment}' (LAKEHOUSE_ENV, or --env) is not in lakehouse.yaml, which has "
        f"{', '.join(known) or 'none'}.{hint} {'Name one of them' if known else 'Add it under `environments`'}"
    )
    return [(("environments",), fault)]


def environment_faults(config: Config) -> list[Fault]:
    """Return the faults of all environments, each at the setting that has it."""
    faults: list[Fault] = []
    for environment, systems in config.environments.items():
        for name, classes in SYSTEMS.items():
            settings = systems.get(name)
            type_ = (settings or {}).get("type")
            if (settings is None and classes.is_optional) or (isinstance(type_, str) and type_ not in classes.types):
                continue  # unknown types are refused when the file is loaded
            at = ("environments", environment, name)
            cls = system(name, settings)
            faults += [((*at, *below), text) for below, text in (*_faults(cls, settings), *_forms(cls, settings or {}))]
    return faults


def system(name: str, settings: Mapping[str, SettingValue] | None = None) -> type[dg.ConfigurableResource]:
    """Return the class of a system's resource, of this project or of another distribution.

    Args:
        name: The system's key in an environment.
        settings: Its settings, whose `type` is the kind of a system with several.
    """
    kind = (settings or {}).get("type")
    if kind is None or SYSTEMS[name].kinds is None:
        resource: type[dg.ConfigurableResource] = resolve_name(SYSTEMS[name].resource)
        return resource
    text = kind.env if isinstance(kind, EnvRef) else str(kind)
    return by_name(kinds(name), text, f"The type '{text}' of '{name}' in lakehouse.yaml is not known.")


def kinds(name: str) -> Mapping[str, type[dg.ConfigurableResource]]:
    """Return the classes of a system's resource by the key `type`; none if the system has one kind."""
    classes: Mapping[str, type[dg.ConfigurableResource]] = {}
    if function := SYSTEMS[name].kinds:
        classes = resolve_name(function)()
    return classes


def lazy_resource(config: Config, environment: str, name: str) -> Callable[[], Any] | None:
    """Return a function that creates a system's resource with its variables read.

    The function raises ConfigError when a variable is not set.

    Returns:
        The function; None if the environment, which may be undeclared, does not name the system.
    """
    settings = config.environments.get(environment, {}).get(name)
    if settings is None:
        return None

    @cache
    def create() -> Any:
        _require_variables(config, (environment, name), {name: settings})
        return _build(config, environment, name).process_config_and_initialize()

    return create


def require_variables(config: Config, environment: str) -> None:
    """Require all variables to which a declared environment refers, with values of the form of their keys.

    Raises:
        ConfigError: A variable is not set, or its value has another form. Values are not repeated.
    """
    _require_variables(config, (environment,), config.environments.get(environment, {}))


def _require_variables(config: Config, at: Location, systems: Mapping[str, Mapping[str, SettingValue] | None]) -> None:
    refs = [ref for settings in systems.values() if settings for ref in references(settings.values())]
    if unset := sorted({ref.env for ref in refs if ref.default is None and not os.environ.get(ref.env)}):
        where = place(config, ("environments", *at))
        raise ConfigError(f"{where}: {', '.join(unset)} not set, or empty. Nothing was changed. Set the variables")
    for name, settings in systems.items():
        for key, fault in _forms(system(name, settings), settings or {}, os.environ):
            where = place(config, ("environments", at[0], name, *key))
            raise ConfigError(f"{where}: {fault}. Nothing was changed")


def _build(config: Config, environment: str, name: str) -> dg.ConfigurableResource:
    settings = config.environments[environment].get(name)
    cls = system(name, settings)
    for at, fault in _faults(cls, settings):
        raise ConfigError(f"{place(config, ('environments', environment, name, *at))}: {fault}")
    fields, settings = cls.model_fields, settings or {}
    return cls(**{name: _value(setting, fields[name].annotation) for name, setting in settings.items()})


def _faults(cls: type[dg.ConfigurableResource], settings: Mapping[str, SettingValue] | None) -> Iterator[Fault]:
    """Yield the faults of a system's settings, each at the key that has it."""
    fields = cls.model_fields
    alternatives = getattr(cls, "ONE_OF", ())
    if settings is None:
        if alternatives or any(field.is_required() for field in fields.values()):
            yield (), "missing. Add the system's settings"
        return
    for name, setting in settings.items():
        # A default is written in the file, too.
        value = setting.default if isinstance(setting, EnvRef) else setting
        if name not in fields:
            yield (name,), f"unknown key.{did_you_mean(name, fields)} Known keys: {', '.join(fields)}"
        elif isinstance(value, dict):
            if name == SETTINGS and (of_client := getattr(cls, "CLIENT_SETTINGS", None)):
                yield from (((name, key), fault) for key, fault in of_client.faults(value))
        elif is_secret(fields[name], value):
            yield (name,), SECRET
        elif isinstance(value, str) and (variable := VARIABLE.fullmatch(value)):
            default = f", default: {variable[3]!r}" if variable[3] else ""
            env = variable[1] or variable[2]
            yield (name,), f"'{value}' is not replaced by a variable. Write {{env: {env}{default}}}"
    if depending := getattr(cls, "FAULTS", None):
        yield from ((key if isinstance(key, tuple) else (key,), fault) for key, fault in depending(settings))
    missing = [name for name, field in fields.items() if field.is_required() and name not in settings]
    if alternatives and not settings.keys() & set(alternatives):
        missing.insert(0, " or ".join(alternatives))
    if missing:
        meaning = f": {fields[missing[0]].description}" if len(missing) == 1 and missing[0] in fields else ""
        yield (), f"{', '.join(missing)} missing. Add it, or {{env: NAME}}{meaning}"


def setting_faults(name: str, settings: Mapping[str, SettingValue]) -> list[Fault]:
    """Return the faults of some settings of a system, each at its key. Further settings may be missing."""
    cls = system(name, settings)
    faults = *_faults(cls, settings), *_forms(cls, settings)
    return [(at, text) for at, text in faults if at and not text.startswith("missing")]


def _forms(
    cls: type[dg.ConfigurableResource], settings: Mapping[str, SettingValue], variables: Mapping[str, str] = {}
) -> Iterator[Fault]:
    """Yield the settings that do not have the form of their key, without the values of those that may be secrets."""
    types = getattr(cls, "TYPES", "")
    backend = resolve_name(types)().get(settings.get("type")) if types else None
    for name, form in {**getattr(cls, "FORMS", {}), **vars(type(backend)).get("forms", {})}.items():
        value, variable = settings.get(name), ""
        if isinstance(value, EnvRef):
            variable = value.env if value.env in variables else ""
            value = variables.get(value.env, value.default)
        if value is None or value == "" or VARIABLE.fullmatch(str(value)) or form.accepts(str(value)):
            continue
        extra = cls.model_fields[name].json_schema_extra
        is_masked = variable or "@" in str(value) or (isinstance(extra, dict) and "dagster__is_secret" in extra)
        subject = f"variable {variable} " if variable else ""
        shown = "" if is_masked else f", but is {value!r}"
        yield (name,), f"{subject}must be {form.text}{shown}. {form.remedy(str(value))}"


def _value(setting: SettingValue, annotation: object) -> object:
    if isinstance(setting, dict):
        values = {name: _value(one, str) for name, one in setting.items()}
        return {name: text_of(value) if isinstance(value, int) else value for name, value in values.items()}
    if not isinstance(setting, EnvRef):
        return setting
    if setting.default is not None and setting.env not in os.environ:
        return setting.default
    is_int = annotation is int or int in get_args(annotation)
    return dg.EnvVar.int(setting.env) if is_int else dg.EnvVar(setting.env)


def with_own_connections(client: Client) -> Client:
    """Return a resource with the same settings and its own connections, for another thread.

    A client that is no Dagster resource, such as one in memory, has no connections.
    """
    if not isinstance(client, dg.ConfigurableResource):
        return client
    return type(client)(**{name: getattr(client, name) for name in type(client).model_fields})
