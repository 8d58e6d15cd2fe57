"""Managed connectors of one cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from resources.confluent.errors import ConfluentError, Rejected
from resources.confluent.plane import Plane

READY = frozenset({"RUNNING"})


@dataclass(frozen=True)
class Connector:
    """A connector. `detail` is the trace of what stopped it; `config` is only known of those in a list."""

    name: str
    phase: str
    detail: str = ""
    config: Mapping[str, str] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(status: dict[str, Any], config: Mapping[str, str] | None = None) -> Connector:
        """Read an answer of `/status`."""
        state = status["connector"]
        return Connector(status["name"], state["state"], state.get("trace") or "", config or {})


@dataclass(frozen=True)
class Connectors:
    """The connectors of one cluster."""

    plane: Plane
    environment_id: str
    cluster_id: str

    def list(self) -> list[Connector]:
        """All, with their states and configurations."""
        answer = self.plane.listed(f"{self._path}/connectors", {"expand": "info,status,id"})
        return [Connector.of(each["status"], each["info"]["config"]) for each in answer.values()]

    def find(self, name: str) -> Connector | None:
        """By name."""
        answer = self.plane.find(f"{self._one(name)}/status")
        return answer and Connector.of(answer)

    def validate(self, config: dict[str, str]) -> None:
        """Have the plane look the configuration over. Nothing is made.

        Raises: Rejected, with each setting's fault.
        """
        plugin = quote(config["connector.class"], safe="")
        answer = self.plane.call("PUT", f"{self._path}/connector-plugins/{plugin}/config/validate", body=config)
        if answer["error_count"]:
            faults = [
                f"{each['value']['name']}: {'; '.join(each['value']['errors'])}"
                for each in answer["configs"]
                if each["value"].get("errors")
            ]
            raise Rejected(
                f"Confluent Cloud does not accept the configuration of connector '{config['name']}':"
                f" {', '.join(faults)}. Nothing was changed. Correct it and run it again"
            )

    def put(self, config: dict[str, str]) -> None:
        """Make the connector of `config["name"]`, or give it this configuration: `wait` for READY."""
        self.plane.call("PUT", f"{self._one(config['name'])}/config", body=config)

    def delete(self, name: str) -> None:
        """Delete it.

        Raises: ConfluentError when the plane says in a success that it failed.
        """
        answer = self.plane.delete(self._one(name))
        if answer and answer.get("error"):
            raise ConfluentError(
                f"Confluent Cloud did not delete connector '{name}': {answer['error']}. It was left as it is. Run it"
                f" again, or delete it in the Cloud Console"
            )

    @property
    def _path(self) -> str:
        return f"/connect/v1/environments/{self.environment_id}/clusters/{self.cluster_id}"

    def _one(self, name: str) -> str:
        return f"{self._path}/connectors/{quote(name, safe='')}"
