"""Sensitive columns: every spelling, path and former name is hidden, and other names are refused."""

import dagster as dg
import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

from assets.factories import dagster_failures
from assets.topics.iceberg_asset import table_metadata
from lakehouse.config import sensitive
from lakehouse.config.model import Topic
from lakehouse.core.errors import ConfigError, UnexpectedError
from lakehouse.pipeline.schemas.schema_decision import ensure_table
from resources.iceberg.catalog import Catalog

CANARY = "canary-4711"


TEXT = StringType()


def optional(name, type_):
    return NestedField(1, name, type_, required=False)


def person():
    return [
        optional("name", TEXT),
        optional("ssn", LongType()),
        optional("address", StructType(optional("street", TEXT), optional("city", TEXT))),
        optional("phones", ListType(1, StructType(optional("number", TEXT)), element_required=False)),
        optional("notes", MapType(1, TEXT, 2, StructType(optional("text", TEXT)), value_required=False)),
    ]


COLUMNS = ["name", "ssn", "address", "phones", "notes"]
ORIGIN = ["kafka_partition", "kafka_offset", "kafka_timestamp", "kafka_schema_id"]


class TableSchemas:
    """The part of a topic's schemas that its table needs."""

    key = None

    def __init__(self, fields, previous_names=None):
        self.struct, self.previous_names = StructType(*fields), previous_names or {}


@pytest.fixture
def catalog(tmp_path):
    return Catalog(type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")


def topic_of(*names, **settings):
    return Topic.model_validate({"name": "people", "sensitive": names} | settings)


def table_of(catalog, topic=None, fields=None, previous_names=None):
    topic = topic or topic_of()
    ref, schemas = topic.table_in("n"), TableSchemas(fields or person(), previous_names)
    return ensure_table(catalog, topic, ref, schemas, catalog.load(ref))


def hidden(catalog, *names):
    visible = sensitive.visible_columns(topic_of(*names), table_of(catalog))
    return [name for name in COLUMNS if name not in visible]


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("ssn", "ssn"),
        ("SSN", "ssn"),
        ("Name", "name"),
        ("address", "address"),
        ("address.street", "address"),
        ("Address.STREET", "address"),
        ("phones.number", "phones"),
        ("phones.element.number", "phones"),
        ("phones.element", "phones"),
        ("notes.text", "notes"),
        ("notes.value.text", "notes"),
        ("notes.key", "notes"),
    ],
)
def test_visible_columns_hides_column_by_every_spelling_and_path(catalog, name, column):
    assert hidden(catalog, name) == [column]


def test_visible_columns_hides_renamed_column(catalog):
    table_of(catalog)
    street = StructType(optional("road", TEXT), optional("city", TEXT))
    renamed = [optional("person_id", LongType()), optional("home", street)]
    previous_names = {"person_id": ("ssn",), "home": ("address",), "home.road": ("street",)}
    table = table_of(catalog, fields=renamed, previous_names=previous_names)
    assert [field.name for field in table.schema().fields][:3] == ["name", "person_id", "home"]
    for names in (["ssn"], ["person_id"], ["address.street"], ["home.road"]):
        visible = sensitive.visible_columns(topic_of(*names), table)
        assert ("person_id" in visible, "home" in visible) == (names[0][0] in "ah", names[0][0] not in "ah")


def test_visible_columns_hides_column_by_name_before_table_existed(catalog):
    fields, previous_names = [optional("person_id", LongType()), optional("name", TEXT)], {"person_id": ("ssn",)}
    table = table_of(catalog, topic_of("ssn"), fields, previous_names)
    assert sensitive.visible_columns(topic_of("ssn"), table) == ["name", *ORIGIN]


def test_visible_columns_hides_column_of_old_snapshot_by_new_name(catalog):
    before = StaticTable(("n", "people"), (table := table_of(catalog)).metadata, "", table.io, None)
    table = table_of(catalog, fields=[optional("person_id", LongType())], previous_names={"person_id": ("ssn",)})
    assert "ssn" not in sensitive.visible_columns(topic_of("person_id"), table, before.schema())


@pytest.mark.parametrize("naming", ["portable", "confluent"])
def test_visible_columns_hides_raw_bytes(catalog, naming):
    columns = ["partition", "offset", "headers", "raw_key", "raw_value"]
    topic = topic_of(metadata={"columns": columns, "naming": naming})
    visible = sensitive.visible_columns(topic, table_of(catalog, topic))
    assert visible[: len(COLUMNS)] == COLUMNS and len(visible) == len(COLUMNS) + 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nmae", "'nmae' among name, ssn, address, .*Did you mean 'name'"),
        ("street", "'street' .*Did you mean 'address.street'"),
        ("address.zip", "'address.zip' "),
        ("raw_value", "'raw_value' "),
    ],
)
def test_visible_columns_unknown_name_is_refused(catalog, name, message):
    topic = topic_of("ssn", name)
    with pytest.raises(ConfigError, match=f"topic 'people': sensitive: table n.people has no column {message}"):
        table_of(catalog, topic)
    with pytest.raises(ConfigError, match=message):
        table_metadata(table_of(catalog), topic)


def test_preview_contains_no_sensitive_value(catalog):
    topic = topic_of("NAME", "ssn", "address.street", "phones.number", metadata={"columns": ["raw_value", "headers"]})
    table = table_of(catalog, topic)
    values = {
        "name": CANARY,
        "ssn": 4711,
        "address": {"street": CANARY, "city": "![](/x)"},
        "phones": [{"number": CANARY}],
        "notes": [("![](/x)|\n", {"text": "<img src=/x>"})],
        "kafka_raw_value": CANARY.encode(),
        "kafka_headers": [{"key": "k", "value": CANARY.encode()}],
        "kafka_partition": 0,
        "kafka_offset": 0,
    }
    table.append(pa.Table.from_pylist([values], schema=table.schema().as_arrow()))
    metadata = table_metadata(table.refresh(), topic)
    preview = metadata["preview"]
    assert isinstance(preview, dg.TableMetadataValue)
    assert [column.name for column in preview.schema.columns] == ["notes", "kafka_partition", "kafka_offset"]
    assert not {"4711", CANARY} & set(str(metadata).replace("'", " ").split()) and CANARY not in str(metadata)
    marked_columns = [c.name for c in metadata["dagster/column_schema"].columns if c.constraints.other == ["sensitive"]]
    assert marked_columns == ["name", "ssn", "address", "phones"]


def test_partitioning_by_sensitive_column_is_refused(catalog):
    table_of(catalog)
    renamed = {"fields": [optional("person_id", LongType())], "previous_names": {"person_id": ("ssn",)}}
    with pytest.raises(ConfigError, match="partitioned by person_id of a sensitive column"):
        table_of(catalog, topic_of("ssn", partition_by=["person_id"]), **renamed)
    table = table_of(catalog, topic_of("ssn", partition_by=["bucket(16, person_id)"]), **renamed)
    assert [str(field.transform) for field in table.spec().fields if str(field.transform) != "void"] == ["bucket[16]"]


def log_of_failed_run(topic):
    @dg.op
    def convert():
        with dagster_failures(topic):
            try:
                raise KeyError(f"first {CANARY}")
            except KeyError:
                raise ValueError(f"cannot convert {CANARY}") from None

    @dg.job(name="convert_all")
    def job():
        convert()

    with dg.DagsterInstance.ephemeral() as instance:
        run = job.execute_in_process(raise_on_error=False, instance=instance)
        return "\n".join(dg.serialize_value(entry) for entry in instance.all_logs(run.run_id))


def test_unexpected_error_of_sensitive_topic_quotes_no_value():
    log = log_of_failed_run(topic_of("ssn"))
    assert CANARY not in log and "failed with ValueError" in log
    assert CANARY in log_of_failed_run(topic_of())


def test_hide_values_replaces_unexpected_errors_only(catalog):
    with pytest.raises(ConfigError, match="a sentence"), sensitive.hide_values(topic_of("ssn")):
        raise ConfigError("a sentence")
    with pytest.raises(UnexpectedError) as raised, sensitive.hide_values(topic_of(), topic_of("ssn")):
        raise ValueError(CANARY)
    assert raised.value.__cause__ is None and raised.value.__suppress_context__


def test_unmatched_names_many_former_names_is_fast():
    type_ = TEXT
    previous_names = {}
    for depth in range(40):
        type_ = StructType(optional("f", type_))
        previous_names[".".join("f" * (depth + 1))] = tuple(f"old{n}" for n in range(20))
    fields = [optional("f", type_)]
    assert sensitive.unmatched_names(["f.f.old3", "nowhere"], fields, previous_names) == ["nowhere"]
