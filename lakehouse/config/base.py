"""The base of everything that lakehouse.yaml declares."""

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Immutable, and without keys that nobody knows."""

    model_config = ConfigDict(extra="forbid", frozen=True)
