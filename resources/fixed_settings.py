"""Definitions of resources whose settings a run cannot change, so that the launchpad does not list them."""

import json
from collections.abc import Mapping

import dagster as dg
from dagster._config.pythonic_config.resource import ConfigurableResourceFactoryResourceDefinition
from dagster._core.definitions.definition_config_schema import ConfiguredDefinitionConfigSchema, DefinitionConfigSchema


class _FixedSettings(ConfiguredDefinitionConfigSchema):
    """A schema of run configuration without keys, whose settings the UI still shows on the resource's page."""

    def __init__(self, definition: dg.ResourceDefinition):
        self._settings = definition.config_schema.default_value_as_json_str
        super().__init__(
            definition, DefinitionConfigSchema(dg.Field({}, is_required=False)), json.loads(self._settings)
        )

    @property
    def default_provided(self) -> bool:
        return True

    @property
    def default_value_as_json_str(self) -> str:
        return self._settings


def with_fixed_settings(
    resources: Mapping[str, dg.ConfigurableResource],
) -> dict[str, dg.ResourceDefinition]:
    """Return definitions of resources whose settings are those of lakehouse.yaml in every run.

    A run configuration could otherwise direct a run to other systems, and the launchpad would begin with the settings
    of all of them.
    """
    return {name: _fixed(resource.get_resource_definition()) for name, resource in resources.items()}


def _fixed(definition: ConfigurableResourceFactoryResourceDefinition) -> dg.ResourceDefinition:
    return ConfigurableResourceFactoryResourceDefinition(
        definition.configurable_resource_cls,
        resource_fn=definition.resource_fn,
        config_schema=_FixedSettings(definition),
        description=definition.description,
        nested_resources=definition.nested_resources,
        nested_partial_resources=definition.nested_partial_resources,
    )
