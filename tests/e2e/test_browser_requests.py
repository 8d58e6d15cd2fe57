"""Contents of records, schemas and other systems that cannot make a page of Dagster's UI send a request."""

import json
import os
import time

import dagster as dg
import pytest

from assets.results import as_table
from lakehouse.config.loader import load
from lakehouse.core.text import escaped
from lakehouse.definitions import defs
from resources.build import build_resources
from tests.support.processes.dagster_stack import DAGSTER, dagster_of
from tests.support.processes.pages import log_in
from tests.support.topics import Stream, framed, register
from tools.repository import PROJECT

IMAGE = "![](/canary-image)"
HOSTILE = (
    f"{IMAGE} <img src=/canary-html> [x](javascript:fetch(1)) <https://canary-autolink.example/> "
    "[![x](/canary-nested)][ref] | `|` |\n\n| a |\n| --- |\n| ![](/canary-table) |\n\n[ref]: /canary-ref\n\n"
    '<iframe src="/canary-frame"></iframe> &lt;img src=/canary-entity&gt; \\![](/canary-escaped)'
)
SECONDS = 60
"""The time limit of a page on a busy machine."""

RECORD = {"type": "record", "name": "R", "doc": HOSTILE}
TEXT = {"type": "string"}
SCHEMA = json.dumps(
    RECORD
    | {
        "fields": [
            {"name": "id", "type": "string", "doc": HOSTILE},
            {"name": "text", "type": TEXT, "doc": HOSTILE},
            {"name": "nested", "type": RECORD | {"name": "N", "fields": [{"name": "a", "type": "string"}]}},
            {"name": "amount", "type": "long"},
        ]
    }
)
CHECKS = {
    "text_known": {"type": "accepted_values", "column": "text", "values": ["a"], "severity": "warn"},
    "by_query": {"type": "query", "sql": "SELECT * FROM {rows}", "severity": "warn"},
    "kept_aside": {"type": "range", "column": "amount", "min": 0, "severity": "quarantine"},
}


@pytest.fixture(scope="module")
def stream(stack, resources, tmp_path_factory):
    """Yield a topic with malicious records and schema, after runs of all its assets and checks."""
    settings = {
        "mode": "upsert",
        "key": "id",
        "checks": CHECKS,
        "metadata": {"columns": ["partition", "offset", "timestamp", "schema_id", "headers", "raw_value"]},
    }
    stream = Stream(resources, partitions=1, settings=settings)
    with (
        dagster_of(stream, stack, tmp_path_factory.mktemp("browser"), DAGSTER[:2]),
        dg.DagsterInstance.get() as instance,
    ):
        schema_id = register(f"{stream.name}-value", SCHEMA)
        for amount in (1, -1):
            value = {"id": f"{HOSTILE}{amount}", "text": HOSTILE, "nested": {"a": HOSTILE}, "amount": amount}
            message = {"key": value["id"].encode(), "headers": [(HOSTILE, HOSTILE.encode())]}
            stream.produce([message | {"value": framed(schema_id, SCHEMA, value)}, message | {"value": b"bad"}])
        materialize(instance, dg.AssetSelection.all(include_sources=False))
        # A duplicate row of another writer makes the ledger quote the key.
        spark = resources.spark.session(resources.catalog.spark_settings())
        table = f"lake.`{stream.namespace}`.`{stream.topic.table}`"
        spark.sql(f"INSERT INTO {table} SELECT * FROM {table} LIMIT 1")
        materialize(instance, dg.AssetSelection.assets([stream.name, "ledger"]))
        yield stream


def materialize(instance, assets):
    job = dg.define_asset_job("whole", assets)
    whole_job = dg.Definitions.merge(defs(), dg.Definitions(jobs=[job])).resolve_job_def("whole")
    built = build_resources(load(PROJECT / "lakehouse.yaml"), "local")
    whole_job.execute_in_process(instance=instance, resources=built, raise_on_error=False)


@pytest.fixture
def requested(page, token, stream):
    """Yield the addresses that the page requests after the login."""
    log_in(page, token)
    addresses = []

    def record_request(request):
        addresses.append(request.url)

    page.on("request", record_request)
    page.on("popup", lambda popup: addresses.append(f"popup {popup.url}"))
    yield addresses
    page.remove_listener("request", record_request)


def visit(page, path, expected=""):
    """Open a page, wait for its contents and for a text that it must show, and open each of its dialogs."""
    page.goto(f"{os.environ['LAKEHOUSE_UI_URL']}/{path}")
    deadline = time.monotonic() + SECONDS
    while True:
        page.wait_for_load_state("networkidle")
        for name in ("[Show Table Schema]", "[Show JSON]", "[Show Markdown]", "Show schema"):
            for link in page.get_by_text(name, exact=True).all():
                # A click would not reach links that an open dialog covers, and all dialogs are to be open at the end.
                link.dispatch_event("click")
        page.wait_for_load_state("networkidle")
        shown = page.locator("body").inner_text()
        if expected in shown:
            return shown
        # On a busy machine, the page sends more requests after it was idle.
        assert time.monotonic() < deadline, f"{path} does not show {expected!r} within {SECONDS} s: {shown}"


def test_asset_pages_request_no_url_of_records_or_schemas(page, requested, stream):
    # The text is visible in the comments of columns, the preview, the samples and the findings of the ledger.
    expected_texts = dict.fromkeys(
        (("iceberg", "overview"), "text_known", "by_query", "kept_aside", "reconciled"), IMAGE
    )
    for system in ("iceberg", "ledger", "dead_letters", "snowflake"):
        for view in ("overview", "events", "checks"):
            visit(page, f"assets/{stream.name}/{system}?view={view}", expected_texts.get((system, view), ""))
    visit(page, f"assets/{stream.name}/iceberg?view=lineage")
    for column in ("text", "nested"):
        visit(page, f"assets/{stream.name}/iceberg?view=overview&column={column}")
    for system, check in (
        *(("iceberg", name) for name in (*CHECKS, "ledger")),
        ("ledger", "reconciled"),
        ("snowflake", "engines_agree"),
    ):
        visit(page, f"assets/{stream.name}/{system}?view=checks&checkDetail={check}", expected_texts.get(check, ""))
    with dg.DagsterInstance.get() as instance:
        for run in instance.get_runs():
            visit(page, f"runs/{run.run_id}")

    assert [url for url in requested if "canary" in url] == []


def test_markdown_metadata_would_request_urls(page, requested, stream):
    """The test above can fail: Dagster renders images of Markdown, but not of the same text escaped or in a table."""
    image = "![](/control-{})"
    metadata = {
        "page": dg.MarkdownMetadataValue(image.format("raw")),
        "harmless": dg.MarkdownMetadataValue(escaped(image.format("escaped"))),
        "table": as_table([image.format("name")], [[image.format("value")]]),
    }
    with dg.DagsterInstance.get() as instance:
        instance.report_runless_asset_event(dg.AssetMaterialization([stream.name, "glue"], metadata=metadata))
    page.goto(f"{os.environ['LAKEHOUSE_UI_URL']}/assets/{stream.name}/glue?view=overview")
    page.get_by_text("control-value").first.wait_for()
    page.wait_for_load_state("networkidle")
    assert {url.rpartition("/")[2] for url in requested if "control" in url} == {"control-raw"}
