"""Rules of schema evolution, and the table after each accepted change."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, TruncateTransform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestamptzType,
)

from lakehouse.core.errors import CommitConflict, IncompatibleSchema, SchemaError
from lakehouse.core.tables.naming import TableRef
from lakehouse.formats import evolution
from lakehouse.formats.schema import RegisteredSchema, Shape
from resources.iceberg.catalog import Catalog
from tests.support.shapes import avro_shape

INT, LONG, TEXT = IntegerType(), LongType(), StringType()


def struct(**fields):
    """Return a struct of optional fields as a shape has them, with arbitrary ids."""
    return StructType(*(NestedField(i, name, type_, required=False) for i, (name, type_) in enumerate(fields.items())))


def list_of(type_):
    return ListType(98, type_, element_required=False)


def map_of(type_, key=TEXT):
    return MapType(96, key, 97, type_, value_required=False)


@pytest.fixture
def catalog(tmp_path):
    catalog = SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("ns")
    return catalog


def evolve(catalog, old, new, previous_names=None):
    """Evolve a table if all changes are accepted, and return the rules that apply with the table."""
    fields = old if isinstance(old, tuple) else old.fields
    table = catalog.create_table("ns.t", Schema(*(f.model_copy(update={"field_id": 500 + f.field_id}) for f in fields)))
    changes = evolution.changes(table.schema(), Shape(new, previous_names or {}))
    if all(change.accepted for change in changes):
        with table.update_schema() as update:
            evolution.apply(update, changes)
        table = table.refresh()
        remaining = evolution.changes(table.schema(), Shape(new, previous_names or {}))
        assert {change.rule for change in remaining} <= {"FIELD_DELETED", "FIELD_REORDERED"}, (
            "the change would be repeated"
        )
    return [(change.rule, ".".join(change.path)) for change in changes], table


DEEP = {"s": struct(l=list_of(struct(m=map_of(struct(a=INT)))))}

ACCEPTED = {
    "add": (struct(a=INT), struct(a=INT, b=TEXT), "OPTIONAL_FIELD_ADDED", "b"),
    "add first": (struct(a=INT), struct(b=TEXT, a=INT), "OPTIONAL_FIELD_ADDED", "b"),
    "add a struct": (struct(a=INT), struct(a=INT, b=struct(x=list_of(INT))), "OPTIONAL_FIELD_ADDED", "b"),
    "add nested": (struct(s=struct(a=INT)), struct(s=struct(a=INT, b=TEXT)), "OPTIONAL_FIELD_ADDED", "s.b"),
    "add deep": (
        struct(**DEEP),
        struct(s=struct(l=list_of(struct(m=map_of(struct(a=INT, b=TEXT)))))),
        "OPTIONAL_FIELD_ADDED",
        "s.l.element.m.value.b",
    ),
    "int to long": (struct(a=INT), struct(a=LONG), "TYPE_WIDENED", "a"),
    "float to double": (struct(a=FloatType()), struct(a=DoubleType()), "TYPE_WIDENED", "a"),
    "digits": (struct(a=DecimalType(9, 2)), struct(a=DecimalType(20, 2)), "TYPE_WIDENED", "a"),
    "in a list": (struct(a=list_of(INT)), struct(a=list_of(LONG)), "TYPE_WIDENED", "a.element"),
    "in a map": (struct(a=map_of(INT)), struct(a=map_of(LONG)), "TYPE_WIDENED", "a.value"),
    "drop": (struct(a=INT, b=TEXT), struct(a=INT), "FIELD_DELETED", "b"),
    "drop nested": (struct(s=struct(a=INT, b=TEXT)), struct(s=struct(a=INT)), "FIELD_DELETED", "s.b"),
    "reorder": (struct(a=INT, b=TEXT), struct(b=TEXT, a=INT), "FIELD_REORDERED", ""),
    "reorder nested": (struct(s=struct(a=INT, b=INT)), struct(s=struct(b=INT, a=INT)), "FIELD_REORDERED", "s"),
}  # fmt: skip
REFUSED = {
    "text": (struct(a=INT), struct(a=TEXT), "UNSUPPORTED_TYPE_CHANGE", "a"),
    "long to double": (struct(a=LONG), struct(a=DoubleType()), "UNSUPPORTED_TYPE_CHANGE", "a"),
    "date to timestamp": (struct(a=DateType()), struct(a=TimestamptzType()), "UNSUPPORTED_TYPE_CHANGE", "a"),
    "fixed length": (struct(a=FixedType(4)), struct(a=FixedType(5)), "UNSUPPORTED_TYPE_CHANGE", "a"),
    "text to bytes": (struct(a=list_of(TEXT)), struct(a=list_of(BinaryType())), "UNSUPPORTED_TYPE_CHANGE", "a.element"),
    "struct to value": (struct(a=struct(x=INT)), struct(a=INT), "TYPE_MISMATCH", "a"),
    "list to value": (struct(a=list_of(INT)), struct(a=INT), "TYPE_MISMATCH", "a"),
    "list to map": (struct(a=list_of(INT)), struct(a=map_of(INT)), "TYPE_MISMATCH", "a"),
    "long to int": (struct(a=LONG), struct(a=INT), "TYPE_NARROWED", "a"),
    "double to float": (struct(s=struct(a=DoubleType())), struct(s=struct(a=FloatType())), "TYPE_NARROWED", "s.a"),
    "fewer digits": (struct(a=DecimalType(9, 2)), struct(a=DecimalType(8, 2)), "TYPE_NARROWED", "a"),
    "scale": (struct(a=DecimalType(9, 2)), struct(a=DecimalType(12, 3)), "DECIMAL_SCALE_CHANGED", "a"),
    "map key": (struct(a=map_of(INT, INT)), struct(a=map_of(INT, LONG)), "MAP_KEY_TYPE_MISMATCH", "a"),
    "case": (struct(price=INT), struct(Price=INT), "CASE_COLLISION", "Price"),
    "case nested": (struct(s=struct(x=INT)), struct(s=struct(X=INT)), "CASE_COLLISION", "s.X"),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_evolve_accepted_change_is_applied(catalog, case):
    old, new, rule, path = ACCEPTED[case]
    changes, table = evolve(catalog, old, new)
    assert changes == [(rule, path)]
    assert leaves(new) <= leaves(table.schema().as_struct())


def leaves(type_, path=""):
    """Return every primitive value as (path, type)."""
    if isinstance(type_, PrimitiveType):
        return {(path, str(type_))}
    if isinstance(type_, StructType):
        fields = type_.fields
    else:
        fields = [type_.element_field] if isinstance(type_, ListType) else [type_.key_field, type_.value_field]
    return set().union(*(leaves(field.field_type, f"{path}.{field.name}") for field in fields))


@pytest.mark.parametrize("case", REFUSED)
def test_require_accepted_unsupported_change_is_explained(catalog, case):
    old, new, rule, path = REFUSED[case]
    changes = evolution.changes(Schema(*old.fields), Shape(new))
    assert [(c.rule, ".".join(c.path)) for c in changes if not c.accepted] == [(rule, path)]
    with pytest.raises(SchemaError, match=rf"ns\.t: {rule} {path.replace('.', '[.]')} .*table was not changed"):
        evolution.require_accepted(changes, "ns.t")


OF_PARTITIONS = {
    "added": (struct(a=INT, b=INT, a_bucket_3=TEXT), {}, "a_bucket_3"),
    "renamed": (struct(a=INT, a_bucket_3=INT), {"a_bucket_3": ("b",)}, "a_bucket_3"),
    "dropped and added": (struct(a=INT, b=INT, c=INT), {}, "c"),
    "field of the first spec": (struct(a=INT, b=INT, old=INT), {}, "old"),
}


@pytest.mark.parametrize("case", OF_PARTITIONS)
def test_require_accepted_name_of_partition_field_is_explained(catalog, case):
    new, previous_names, name = OF_PARTITIONS[case]
    table = catalog.create_table("ns.t", Schema(*struct(a=INT, b=INT, c=INT).fields))
    with table.update_spec() as update:
        update.add_field("a", TruncateTransform(4), "old")
    with table.update_spec() as update:
        update.remove_field("old").add_field("a", BucketTransform(3), "a_bucket_3").add_identity("c")
    with table.update_spec() as update:
        update.remove_field("c")
    with table.update_schema() as update:
        update.delete_column("c")

    changes = evolution.changes(table.schema(), Shape(new, previous_names), table.specs().values())

    assert [(c.rule, ".".join(c.path)) for c in changes if not c.accepted] == [("PARTITION_FIELD", name)]
    with pytest.raises(IncompatibleSchema, match=rf"ns\.t: PARTITION_FIELD {name}: .*table was not changed"):
        evolution.require_accepted(changes, "ns.t")
    with pytest.raises(ValueError, match="Cannot create"), table.update_schema() as update:
        evolution.apply(update, evolution.changes(table.schema(), Shape(new, previous_names)))


def test_evolve_column_to_the_name_of_its_own_partition_field(catalog):
    table = catalog.create_table("ns.t", Schema(*struct(a=INT, b=INT).fields))
    with table.update_spec() as update:
        update.add_identity("a")
    for before, after in (("a", "c"), ("c", "a")):
        shape = Shape(struct(**{after: INT, "b": INT}), {after: (before,)})
        changes = evolution.changes(table.schema(), shape, table.specs().values())
        assert [change.rule for change in changes] == ["FIELD_RENAMED"]
        with table.update_schema() as update:
            evolution.apply(update, changes)

    assert table.schema().column_names == ["a", "b"]


def test_evolve_renamed_column_keeps_its_id(catalog):
    changes, table = evolve(
        catalog,
        struct(a=INT, s=struct(x=list_of(struct(y=INT)))),
        struct(b=LONG, t=struct(x=list_of(struct(z=INT, w=TEXT)))),
        {"b": ("unknown", "a"), "t": ("s",), "t.x.element.z": ("y",)},
    )
    assert changes == [
        ("FIELD_RENAMED", "b"),
        ("TYPE_WIDENED", "b"),
        ("FIELD_RENAMED", "t"),
        ("FIELD_RENAMED", "t.x.element.z"),
        ("OPTIONAL_FIELD_ADDED", "t.x.element.w"),
    ]
    before = next(s for s in table.schemas().values() if s.schema_id == 0)
    for old, new in [("a", "b"), ("s", "t"), ("s.x.element.y", "t.x.element.z")]:
        assert before.find_field(old).field_id == table.schema().find_field(new).field_id
    assert len(table.schemas()) == 2, "more than one schema commit"


def test_evolve_existing_column_of_new_name_is_no_rename(catalog):
    changes, _ = evolve(catalog, struct(a=INT, b=INT), struct(b=INT), {"b": ("a",)})
    assert changes == [("FIELD_DELETED", "a")]


def test_changes_reused_name_is_refused():
    changes = evolution.changes(Schema(*struct(a=INT).fields), Shape(struct(b=INT, a=TEXT), {"b": ("a",)}))
    assert ("NAME_REUSED", ("b",)) in [(c.rule, c.path) for c in changes]


@pytest.mark.parametrize(
    "versions",
    {
        "at once": (["a"], ["b<a", "a"]),
        "after the rename": (["a"], ["b<a"], ["b<a", "a"]),
        "without the alias": (["a"], ["b<a"], ["b", "a"]),
        "swapped": (["a", "b"], ["b<a", "a<b"]),
        "after two renames": (["a"], ["b<a"], ["c<b", "a"]),
    }.values(),
)
@pytest.mark.parametrize("is_nested", [False, True])
def test_shape_avro_reused_name_is_refused(versions, is_nested):
    """Avro's own implementations disagree on the field to which the older value belongs."""

    def schema(id_, fields):
        declared = [{"name": f.split("<")[0], "type": "int", "aliases": f.split("<")[1:]} for f in fields]
        record = {"type": "record", "name": "R", "fields": declared}
        if is_nested:
            record = {"type": "record", "name": "Outer", "fields": [{"name": "r", "type": ["null", record]}]}
        return RegisteredSchema(id_, json.dumps(record))

    with pytest.raises(SchemaError, match="of Avro record 'R' has the alias .*NAME_REUSED"):
        avro_shape([schema(id_, fields) for id_, fields in enumerate(versions, 1)])


def test_changes_avro_reused_name_of_deleted_version_is_refused():
    record = '{"type": "record", "name": "R", "fields": [%s]}'
    renamed = '{"name": "b", "type": "int", "aliases": ["a"]}'
    first = RegisteredSchema(1, record % '{"name": "a", "type": "int"}')
    both = RegisteredSchema(2, record % f'{renamed}, {{"name": "a", "type": "int"}}')

    changes = evolution.changes(Schema(*avro_shape([first]).struct.fields), avro_shape([both]))

    assert ("NAME_REUSED", ("b",)) in [(c.rule, c.path) for c in changes]


CARD, CASH = (
    {"type": "record", "name": name, "fields": [{"name": "amount", "type": "int"}]} for name in ("Card", "Cash")
)
UNIONS = {
    "a branch more": ([["null", CARD, CASH], [CARD, "string", CASH]], []),
    "another order": ([[CARD, CASH], [CASH, CARD]], []),
    "a branch less": ([[CARD, CASH], [CASH]], []),
    "a new name by alias": ([[CARD, CASH], [{**CARD, "name": "Plastic", "aliases": ["Card"]}, CASH]], []),
    "a record becomes a union": ([["null", CARD], ["null", CARD, CASH]], [("TYPE_MISMATCH", "paid")]),
    "text becomes a union": ([["null", "string"], ["null", "string", "int"]], [("TYPE_MISMATCH", "paid")]),
    "in another order, without the first version": ([[CARD, CASH], None, [CASH, CARD]], [
        ("BRANCH_CHANGED", "paid.member0"), ("BRANCH_CHANGED", "paid.member1")]),
    "a branch less, without the first version": ([[CARD, CASH], None, [CASH, "int"]], [
        ("BRANCH_CHANGED", "paid.member0"), ("BRANCH_CHANGED", "paid.member1")]),
    "a record again, without the first version": ([[CARD, CASH], None, CARD], [("TYPE_MISMATCH", "paid")]),
}  # fmt: skip


@pytest.mark.parametrize("case", UNIONS)
def test_changes_avro_union_member_keeps_its_branch(case):
    """None in a case means that the versions before it were deleted from the registry."""
    unions, expected = UNIONS[case]
    texts = [json.dumps({"type": "record", "name": "R", "fields": [{"name": "paid", "type": u}]}) for u in unions if u]
    versions = [RegisteredSchema(n, text) for n, text in enumerate(texts)]
    before = avro_shape(versions[:1]).struct

    changes = evolution.changes(Schema(*before.fields), avro_shape(versions[1:] if None in unions else versions))

    assert [(c.rule, ".".join(c.path)) for c in changes if not c.accepted] == expected


def test_evolve_new_spelling_by_alias_is_a_rename(catalog):
    changes, table = evolve(catalog, struct(price=INT), struct(Price=INT), {"Price": ("price",)})
    assert changes == [("FIELD_RENAMED", "Price")]
    assert table.schema().column_names == ["Price"]


def test_evolve_required_columns_become_optional(catalog):
    required = NestedField(2, "b", INT, required=True)
    changes, table = evolve(catalog, (NestedField(1, "a", INT, required=True),), StructType(
        NestedField(1, "a", INT, required=False), required))  # fmt: skip
    assert changes == [("NON_NULLABLE_TO_NULLABLE", "a"), ("REQUIRED_FIELD_ADDED", "b")]
    assert not any(field.required for field in table.schema().fields)


def test_evolve_comment_is_updated(catalog):
    new = StructType(NestedField(1, "a", INT, required=False, doc="It's \\ new"))
    changes, table = evolve(catalog, struct(a=INT), new)
    assert changes == [("COMMENT_CHANGED", "a")]
    assert table.schema().find_field("a").doc == "It's \\ new"


def test_ddl_matches_each_change():
    new = StructType(
        NestedField(1, "b`c", LONG, required=False, doc="It's"),
        NestedField(2, "s", struct(x=list_of(DecimalType(9, 2)), m=map_of(TimestamptzType())), required=False),
    )
    changes = evolution.changes(Schema(*struct(a=INT).fields), Shape(new, {"b`c": ("a",)}))
    assert [change.ddl for change in changes] == [
        "RENAME COLUMN `a` TO `b``c`",
        "ALTER COLUMN `b``c` COMMENT 'It\\'s'",
        "ALTER COLUMN `b``c` TYPE BIGINT",
        "ADD COLUMN `s` STRUCT<`x`: ARRAY<DECIMAL(9,2)>, `m`: MAP<STRING, TIMESTAMP>>",
    ]


def test_require_accepted_several_changes_are_all_named():
    changes = evolution.changes(Schema(*struct(a=INT, b=LONG).fields), Shape(struct(a=TEXT, b=INT, c=INT)))
    with pytest.raises(SchemaError, match="UNSUPPORTED_TYPE_CHANGE a .int to string.*TYPE_NARROWED b .long to int"):
        evolution.require_accepted(changes, "ns.t")


def test_ensure_table_concurrent_writers_keep_all_changes(tmp_path):
    def writer():
        return Catalog(type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")

    writer().ensure_table(TableRef("ns", "t"), Schema(*struct(a=INT).fields))
    requests = [(writer(), Schema(*struct(a=LONG, **{name: TEXT}).fields)) for name in "xyz"]

    def change(request):
        catalog, schema = request
        for _ in requests:
            # A writer that another one was faster than runs again.
            with suppress(CommitConflict):
                return catalog.ensure_table(TableRef("ns", "t"), schema, existing=catalog.load(TableRef("ns", "t")))
        raise AssertionError("each conflict lets another writer finish")

    with ThreadPoolExecutor() as pool:
        list(pool.map(change, requests))

    schema = writer().load(TableRef("ns", "t")).schema()
    assert set(schema.column_names) == {"a", "x", "y", "z"}
    assert schema.find_field("a").field_type == LONG


def test_ensure_table_refused_change_applies_nothing(tmp_path):
    catalog = Catalog(type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    before = catalog.ensure_table(TableRef("ns", "t"), Schema(*struct(a=INT, b=INT).fields))
    with pytest.raises(SchemaError, match="UNSUPPORTED_TYPE_CHANGE b"):
        catalog.ensure_table(TableRef("ns", "t"), Schema(*struct(a=LONG, b=TEXT, c=INT).fields))
    assert catalog.load(TableRef("ns", "t")).metadata == before.metadata
    after = catalog.ensure_table(TableRef("ns", "t"), Schema(*struct(c=INT, b=INT).fields), {"c": ("a",)}, before)
    assert after.schema().column_names == ["c", "b"]


def test_ensure_table_renamed_since_the_schema_was_read_is_conflict(tmp_path):
    """A writer that read the older schema must not add the column again under its previous name."""
    catalog = Catalog(type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    ref, older = TableRef("ns", "t"), Schema(*struct(a=INT).fields)
    before, loaded_before = catalog.ensure_table(ref, older), catalog.load(ref)
    widened = Schema(*struct(a=INT, b=INT).fields)
    catalog.ensure_table(ref, Schema(*struct(c=INT).fields), {"c": ("a",)}, before)

    for existing in (None, loaded_before):
        with pytest.raises(CommitConflict, match="Another writer changed ns.t. Nothing was changed"):
            catalog.ensure_table(ref, widened, existing=existing)

    assert catalog.load(ref).schema().column_names == ["c"]
