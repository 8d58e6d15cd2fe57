"""This project: the whole ingestion, with branch, audit and publication, through a Spark Connect server."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from functools import partial

import psutil

from lakehouse.cli.systems import open_clients
from lakehouse.config import loader
from lakehouse.config.model import Topic
from lakehouse.local.home import Home
from lakehouse.local.processes import process
from peers.contender import NAMESPACE, PythonContender, Stack, Work, idle


def work(native: str, stack: Stack) -> Work:
    """Return a function that repeats the ingestion of a topic, with a setting of the compiled decoder.

    Clients are opened once, as those of a stream are.
    """
    from lakehouse.pipeline.clients import Clients
    from lakehouse.pipeline.ingestion import ingest

    config = loader.load()
    local = config.environments["local"]
    environments = config.environments | {"local": local | {"spark": local["spark"] | {"native": native}}}
    opened = open_clients(config.model_copy(update={"environments": environments}))
    systems = Clients.of(opened.__enter__())
    atexit.register(opened.__exit__, None, None, None)

    def keep_up(name: str, table: str, ended: Callable[[], bool]) -> None:
        metadata = {"columns": ["partition", "offset"]}
        topic = Topic.model_validate({"name": name, "table": table, "key": "userid", "metadata": metadata})
        while not ended():
            if not sum(1 for _ in ingest(NAMESPACE, topic, systems)):
                idle()

    return keep_up


class Lakehouse(PythonContender):
    """The loop, and the Spark server of the stack.

    Args:
        name: The contender's name.
        native: The setting `native` of the Spark resource: `auto` or `off`.
        stack: The shared servers.
        home: The state folder whose Spark server is used.
    """

    creates_table = True

    def __init__(self, name: str, native: str, stack: Stack, home: Home):
        super().__init__(name, partial(work, native), stack)
        self._home = home

    def processes(self) -> list[psutil.Process]:
        return [*super().processes(), *process.running(self._home)["spark"].processes]
