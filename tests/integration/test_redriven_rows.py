"""Redriven and replayed rows of a source in the topics that are derived from it, and in their freshness."""

import io
import json

import fastavro
from click.testing import CliRunner

from lakehouse.cli.main import main
from lakehouse.config.loader import load
from lakehouse.pipeline.batches.offsets import resume
from lakehouse.pipeline.redrive import redrive
from lakehouse.readers.reader_lag import measure_lag
from tests.support.topics import CHEAP, consume, with_checks
from tests.support.totals import Totals
from tools.repository import PROJECT

FIRST_MS = 1_790_000_000_000
TOTALS = fastavro.parse_schema(json.loads((PROJECT / "schemas/stock_trades_with_totals-value.avsc").read_text()))


class Derived:
    """Trades of which a check quarantines some, and two topics that are derived from them: from rows, and groups."""

    def __init__(self, resources, folder, patch):
        self.totals = Totals(resources, checks=CHEAP)
        self.trades = self.totals.trades
        self.flags = f"flags-{self.trades.namespace}"
        source = {"type": "derived", "from": self.trades.name, "transform": "spark.flags:flagged"}
        totals = self.totals.settings | {"partitions": self.totals.totals.partitions}
        self.entries = {self.flags: {"source": source}, self.totals.totals.name: totals}
        self.folder, self.resources, self.patch = folder, resources, patch
        self.declare(CHEAP)

    def declare(self, checks):
        """Declare the topics with other checks of the trades."""
        self.trades.settings = self.trades.settings | {"checks": checks}
        self.trades.topic = with_checks(self.trades.topic, checks)
        self.patch.setenv("LAKEHOUSE_CONFIG", str(self.trades.declare(self.folder, self.entries)))

    def command(self, *arguments):
        """Run a command that must succeed, and return its output."""
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, result.output + repr(result.exception)
        return result.output

    def are_fresh(self):
        """Return whether each derived topic is fresh, as the check, the sensor and the command measure it."""
        config = load()
        return [measure_lag("kafka", config, config.topic(name), self.resources).is_fresh for name in self.entries]

    def derived(self):
        """Return the number of flagged messages, and that of the trades in the newest totals."""
        newest = {m.key: m.value for m in consume(self.totals.totals.name, self.totals.totals.partitions)}
        totals = [fastavro.schemaless_reader(io.BytesIO(value[5:]), TOTALS) for value in newest.values()]
        flags = load().topic(self.flags)
        return len(consume(flags.topic, flags.partitions)), sum(total["trade_count"] for total in totals)


def test_redriven_and_replayed_rows_are_derived_and_lag_before(resources, tmp_path, monkeypatch):
    derived = Derived(resources, tmp_path, monkeypatch)
    trades = derived.trades
    derived.totals.produce(range(100), FIRST_MS)
    trades.ingest()
    cheap = len(trades.rows())
    assert 0 < cheap < 100
    # The first command derives what ingestion by hand left.
    derived.command("replay", trades.name, "--since", "earliest")
    assert derived.derived() == (cheap, cheap) and derived.are_fresh() == [True, True]
    derived.declare({})

    assert redrive(trades.namespace, trades.topic, trades.systems).recovered == 100 - cheap
    assert derived.derived() == (cheap, cheap) and derived.are_fresh() == [False, False]
    # No dead letter is left, as if a command had been killed before it derived the rows.
    assert f"{100 - cheap} messages derived for {derived.flags}" in derived.command("redrive", trades.name)
    assert derived.derived() == (100, 100) and derived.are_fresh() == [True, True]

    # What an operator skipped, a replay adds.
    derived.totals.produce(range(100, 120), FIRST_MS)
    ends = resources.kafka.offsets([trades.name])[trades.name]
    skipped = ",".join(f"{p}:{offsets.end}" for p, offsets in ends.items())
    resume(trades.systems, trades.namespace, trades.topic, skipped, "skipped")
    derived.totals.produce([120], FIRST_MS)
    trades.ingest()
    derived.command("replay", trades.name, "--since", "earliest")
    assert derived.derived() == (121, 121) and derived.are_fresh() == [True, True]


def test_redrive_by_command_is_derived(resources, tmp_path, monkeypatch):
    derived = Derived(resources, tmp_path, monkeypatch)
    derived.totals.produce(range(40, 80), FIRST_MS)
    derived.trades.ingest()
    derived.declare({})

    output = derived.command("redrive", derived.trades.name)

    assert f"derived for {derived.totals.totals.name}" in output
    assert derived.derived() == (40, 40) and derived.are_fresh() == [True, True]
