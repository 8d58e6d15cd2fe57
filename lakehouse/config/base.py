"""The base class of all models of lakehouse.yaml, and their faults."""

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field

Location = tuple[str | int, ...]
"""The path from the root of lakehouse.yaml, or from an entry in it, to a value: mapping keys and sequence indexes."""

Fault = tuple[Location, str]
"""A location and the problem there, then its remedy."""


class ConfigModel(BaseModel):
    """An immutable part of lakehouse.yaml that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def type_of(model: type[ConfigModel]) -> str:
    """Return the value of `type` that selects a model in lakehouse.yaml."""
    return str(get_args(model.model_fields["type"].annotation)[0])


def one_of(models: Iterable[type[ConfigModel]]) -> Any:
    """Return the union of the models, discriminated by `type`."""
    return Annotated[reduce(or_, models), Field(discriminator="type")]
