"""Managed connectors of one cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from resources.confluent.api_client import ApiClient
from resources.confluent.api_errors import ConfluentError, InvalidRequest
from resources.confluent.traces import shortened

READY = frozenset({"RUNNING"})


@dataclass(frozen=True)
class Task:
    """A task of a connector. `detail` is the reason of its failure, without credentials."""

    id: int
    phase: str
    detail: str = ""


@dataclass(frozen=True)
class Connector:
    """A connector. `detail` is the reason of its failure, without credentials; only `list` sets `config`."""

    name: str
    phase: str
    detail: str = ""
    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    tasks: tuple[Task, ...] = ()

    @property
    def failures(self) -> list[str]:
        """The reasons why it or some of its tasks failed; empty if nothing did."""
        failed = [task for task in self.tasks if task.phase == "FAILED"]
        reasons = [self.detail, *(f"task {task.id}: {task.detail or task.phase}" for task in failed)]
        return [reason for reason in reasons if reason]

    @staticmethod
    def of(status: dict[str, Any], config: Mapping[str, str] | None = None) -> Connector:
        """Parse a response of `/status`."""
        state = status["connector"]
        tasks = tuple(
            Task(task["id"], task["state"], shortened(task.get("msg") or "")) for task in status.get("tasks") or ()
        )
        return Connector(status["name"], state["state"], shortened(state.get("trace") or ""), config or {}, tasks)


@dataclass(frozen=True)
class Connectors:
    """The connectors of one cluster."""

    client: ApiClient
    environment_id: str
    cluster_id: str

    def list(self) -> list[Connector]:
        """Return all connectors with their states and configurations."""

        def connectors(response: dict[str, Any]) -> list[Connector]:
            return [Connector.of(one["status"], one["info"]["config"]) for one in response.values()]

        return self.client.listed(f"{self._path}/connectors", connectors, {"expand": "info,status,id"})

    def find(self, name: str) -> Connector | None:
        """Return the connector with a name, without its configuration; None if it does not exist."""
        return self.client.find(f"{self._one(name)}/status", Connector.of)

    def validate(self, config: dict[str, str]) -> None:
        """Validate a configuration on the API, without effect.

        Raises:
            InvalidRequest: Settings are invalid; the message has the errors of each.
        """
        plugin = quote(config["connector.class"], safe="")

        def faults(response: dict[str, Any]) -> list[str] | None:
            return response["error_count"] and [
                f"{setting['value']['name']}: {'; '.join(setting['value']['errors'])}"
                for setting in response["configs"]
                if setting["value"].get("errors")
            ]

        path = f"{self._path}/connector-plugins/{plugin}/config/validate"
        if faulty := self.client.send("PUT", path, faults, body=config):
            raise InvalidRequest(
                f"Confluent Cloud does not accept the configuration of connector '{config['name']}': "
                f"{', '.join(faulty)}. The connector was left unchanged. Correct the settings and run the command again"
            )

    def put(self, config: dict[str, str]) -> None:
        """Create the connector `config["name"]`, or replace its configuration. `wait` until it is READY."""
        self.client.call("PUT", f"{self._one(config['name'])}/config", body=config)

    def delete(self, name: str) -> None:
        """Delete a connector.

        Raises:
            ConfluentError: The API reports an error, even in a successful response.
        """
        response = self.client.delete(self._one(name))
        if isinstance(response, dict) and response.get("error"):
            raise ConfluentError(
                f"Confluent Cloud did not delete connector '{name}': {response['error']}. It is unchanged. Run the "
                f"command again, or delete it in the Cloud Console"
            )

    @property
    def _path(self) -> str:
        return f"/connect/v1/environments/{self.environment_id}/clusters/{self.cluster_id}"

    def _one(self, name: str) -> str:
        return f"{self._path}/connectors/{quote(name, safe='')}"
