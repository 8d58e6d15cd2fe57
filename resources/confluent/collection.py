"""Collections of objects in Confluent Cloud: what the services of all kinds have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar
from urllib.parse import quote

from lakehouse.core.errors import UnclearState
from resources.confluent.api_client import ApiClient

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Collection(ABC, Generic[Kind]):
    """The objects of one kind, which are found by their display names and read by their ids."""

    client: ApiClient

    label: ClassVar[str]
    """The kind in messages."""
    kind: ClassVar[Any]
    """The class of the objects, with a function `of` that parses a response."""
    is_forbidden_if_missing: ClassVar[bool] = False
    """Whether the API refuses to delete an object that does not exist. The list then shows whether it exists."""

    @property
    @abstractmethod
    def path(self) -> str:
        """The path of the list."""

    @property
    def query(self) -> Mapping[str, str]:
        """The parameters that name the environment or cluster."""
        return {}

    def list(self) -> list[Kind]:
        """Return the objects that are visible to the key."""
        return list(self.client.items(self.path, self.kind.of, self.query))

    def find(self, name: str) -> Kind | None:
        """Return the object with a display name, or None.

        Raises:
            UnclearState: Several objects have the name. Confluent does not guarantee unique names.
        """
        listed: list[Any] = self.list()
        return single_match(f"{self.label} '{name}'", [one for one in listed if one.name == name])

    def get(self, id_: str) -> Kind | None:
        """Return the object with an id; None if it does not exist."""
        return self.client.find(self._one(id_), self.kind.of, self.query)

    def delete(self, id_: str) -> None:
        """Delete the object with an id, or start to; `wait_until_deleted` waits for the end."""

        def may_exist() -> bool:
            listed: list[Any] = self.list() if self.is_forbidden_if_missing else []
            return not self.is_forbidden_if_missing or any(one.id == id_ for one in listed)

        self.client.delete(self._one(id_), self.query, may_exist=may_exist)

    def _create(self, body: Mapping[str, Any]) -> Kind:
        return self.client.send("POST", self.path, self.kind.of, body=body)

    def _one(self, id_: str) -> str:
        return f"{self.path}/{quote(id_, safe='')}"


class NamedCollection(Collection[Kind]):
    """The objects of one kind whose names are their ids."""

    def find(self, name: str) -> Kind | None:
        return self.get(name)


def single_match(what: str, matches: list[Any]) -> Any:
    """Return the only object of a name; None if it does not exist.

    Args:
        what: Kind and name of the object, for messages.
        matches: The objects of that name.

    Raises:
        UnclearState: There are several objects.
    """
    if len(matches) > 1:
        ids = ", ".join(str(match.id) for match in matches)
        raise UnclearState(
            f"Confluent Cloud has {len(matches)} matches for {what}: {ids}. They were left unchanged. Delete or rename "
            f"all but one"
        )
    return matches[0] if matches else None
