"""The base of everything that lakehouse.yaml declares."""

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field


class Model(BaseModel):
    """Immutable, and without keys that nobody knows."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def type_of(model: type[Model]) -> str:
    """Return the `type` by which lakehouse.yaml chooses a model."""
    return str(get_args(model.model_fields["type"].annotation)[0])


def one_of(models: Iterable[type[Model]]) -> Any:
    """Return the type of a value that is one of the models, by its `type`."""
    return Annotated[reduce(or_, models), Field(discriminator="type")]
