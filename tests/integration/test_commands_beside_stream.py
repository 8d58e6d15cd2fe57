"""Redrive and replay beside `lakehouse stream`, which commits to the table every few seconds."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

from lakehouse.core.polling import poll
from lakehouse.pipeline.redrive import redrive
from lakehouse.pipeline.replay import replay
from resources.iceberg import reservation
from tests.support.topics import CHEAP, Stream, with_checks

SECONDS = 300
"""The longest that a condition may take on a busy machine."""


@contextmanager
def busy_stream(stream, folder):
    """Run `lakehouse stream` in another process, and produce a trade every tenth of a second."""
    settings = stream.settings | {"continuous": True}
    stream.settings = settings
    environment = os.environ | {"LAKEHOUSE_CONFIG": str(stream.declare(folder))}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "lakehouse.cli.main", "stream", stream.name],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        ending = threading.Event()

        def produce():
            number = 1_000
            while not ending.wait(0.1):
                stream.produce_trades(range(number, number + 5))
                number += 5

        producing = threading.Thread(target=produce)
        producing.start()
        try:
            yield process
        finally:
            ending.set()
            producing.join(30)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


def batches(stream):
    """Return the number of batches that were published."""
    table = stream.table()
    counts = json.loads(table.properties.get("lakehouse.counts", "{}")) if table else {}
    return len(counts)


def test_redrive_and_replay_commit_beside_busy_stream(resources, tmp_path):
    stream = Stream(resources, partitions=1, settings={"mode": "append"})
    unchecked, stream.topic = stream.topic, with_checks(stream.topic, CHEAP)
    stream.produce_trades(range(100))
    stream.ingest()
    cheap = len(stream.rows())
    assert 0 < cheap < 100
    stream.topic = unchecked

    with busy_stream(stream, tmp_path):
        before = batches(stream)
        assert poll(lambda: batches(stream) > before + 1, pause=0.2, deadline_seconds=SECONDS)
        began = time.monotonic()
        redriven = redrive(stream.namespace, stream.topic, stream.systems)
        replayed = replay(stream.namespace, stream.topic, stream.systems, "earliest")
        seconds = time.monotonic() - began
        # The stream continues as soon as the commands end.
        after = batches(stream)
        assert poll(lambda: batches(stream) > after + 1, pause=0.2, deadline_seconds=SECONDS)

    assert redriven.recovered == 100 - cheap and replayed.counts.rows >= 100
    assert seconds < SECONDS, seconds
    assert reservation.reservation_of(stream.table()) is None
    places = [(row["kafka_partition"], row["kafka_offset"]) for row in stream.rows()]
    assert places == [(0, offset) for offset in range(len(places))]


def test_reservation_of_killed_command_expires(resources, monkeypatch):
    """Nobody removes it: a batch waits for its end, and a command that follows as well."""
    monkeypatch.setattr(reservation, "LEASE_SECONDS", 5.0)
    stream = Stream(resources, partitions=1, settings={"mode": "append"})
    stream.produce_trades(range(10))
    stream.ingest()
    reservation.Lease(resources.catalog, stream.topic.table_in(stream.namespace), "replay killed").hold(60.0)
    assert reservation.reservation_of(stream.table()).command == "replay killed"
    stream.produce_trades(range(10, 20))
    began = time.monotonic()

    [published] = stream.ingest()

    assert published.counts.rows == 10 and time.monotonic() - began > 4
    assert replay(stream.namespace, stream.topic, stream.systems, "earliest").counts.rows == 20
