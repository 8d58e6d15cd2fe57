"""The table that a verification writes, reads with every engine, and removes."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lakehouse.core.errors import LakehouseError, UnclearState
from lakehouse.core.tables import naming
from lakehouse.core.tables.naming import TableRef
from lakehouse.deploy.verification.deployment_role import CANARY, MARK, DeploymentRole, Probe, Step, Unchecked
from resources.iceberg.catalog import PROPERTIES

ROWS = 3
"""Number of rows of the canary table."""
COLUMN = "n"
COMMENT = ",".join(f"{name}={value}" for name, value in MARK.items())
"""The comment of the table in Snowflake, by which it is recognized before it is dropped."""


@dataclass(frozen=True)
class Canary:
    """The canary table of one namespace."""

    namespace: str
    clients: Any
    """Has the resource `catalog` as an attribute, and `snowflake` and `athena` if the environment has them."""
    written: list[TableRef] = field(default_factory=list)
    """The table, once it has its rows."""

    @property
    def ref(self) -> TableRef:
        """The table."""
        return TableRef(self.namespace, CANARY)

    @property
    def leftovers(self) -> str:
        """The remedy if the table could not be removed."""
        return f"Run `lakehouse deploy verify` again, or drop {self.ref} in Glue, its files and its table in Snowflake"

    def write(self, role: str) -> Probe:
        """Return the step that creates the table and appends its rows, as ingestion does."""

        def write() -> None:
            catalog, rows = self.clients.catalog, pa.table({COLUMN: list(range(ROWS))})
            with catalog.translate_errors():
                table = catalog.iceberg().create_table(self.ref.identifier, rows.schema, properties=PROPERTIES | MARK)
                table.append(rows)
            self.written.append(self.ref)

        return Probe(role, "creation and an append by pyiceberg", str(self.ref), write)

    def read(self, role: str, snowflake_role: str) -> Iterator[Step]:
        """Yield the steps that count the rows with each engine.

        Args:
            role: Of DuckDB and Athena.
            snowflake_role: That Snowflake assumes.
        """
        for system, caller, action, call in (
            ("catalog", role, "a scan by pyiceberg", self._scan),
            ("athena", role, "athena:GetQueryResults of a count", self._query_athena),
            ("snowflake", snowflake_role, "CREATE ICEBERG TABLE in Snowflake", self._create_in_snowflake),
            ("snowflake", snowflake_role, "a query by Snowflake", self._query_snowflake),
        ):
            if not self.written:
                yield Unchecked(caller, f"{action} on {self.ref}", "the canary table could not be written")
            elif not hasattr(self.clients, system):
                yield Unchecked(caller, f"{action} on {self.ref}", f"the environment has no `{system}`")
            else:
                yield Probe(caller, action, str(self.ref), call)

    def remove(self, role: DeploymentRole) -> list[str]:
        """Remove the table from Snowflake, if the environment has it, and from Glue, then its files.

        Args:
            role: The role that deletes tables and files.

        Returns:
            Snowflake's refusal, which keeps nothing else from being removed.

        Raises:
            UnclearState: Glue or Snowflake has a table of this name that no verification created.
        """
        glue, s3 = role.service("glue"), role.service("s3")
        table = {"CatalogId": role.names.account, "DatabaseName": role.namespace, "Name": CANARY}
        response = glue.find("get_table", **table)
        if response and not response["Table"].get("Parameters", {}).items() >= MARK.items():
            raise UnclearState(
                f"Glue has a table {role.namespace}.{CANARY} that no verification wrote. It was left untouched. "
                f"Copy the rows that you need, and drop that table: a renamed one would keep its "
                f"files in {role.folder}, which verifications empty"
            )
        problems = self._drop_in_snowflake()
        if response:
            glue.find("delete_table", **table)
        bucket = role.names.bucket
        for file in list(s3.items("list_objects_v2", "Contents", Bucket=bucket, Prefix=role.folder)):
            s3.call("delete_object", Bucket=bucket, Key=file["Key"])
        return problems

    def _drop_in_snowflake(self) -> list[str]:
        if not hasattr(self.clients, "snowflake"):
            return []
        try:
            comment = self.clients.snowflake.table_comment(*self.ref.shown)
            if comment == COMMENT:
                self.clients.snowflake.drop_iceberg_table(*self.ref.shown)
        except LakehouseError as error:
            return [str(error)]
        if comment not in (None, COMMENT):
            table = ".".join(map(naming.snowflake_name, self.ref.shown))
            raise UnclearState(
                f"Snowflake has an Iceberg table {table} that no verification created: its comment is '{comment}', not "
                f"'{COMMENT}'. It was left unchanged. Rename it, or drop it if nobody needs it"
            )
        return []

    def _scan(self) -> None:
        catalog = self.clients.catalog.for_readers()
        with catalog.translate_errors():
            _require_rows("PyIceberg", catalog.iceberg().load_table(self.ref.identifier).scan().to_arrow().num_rows)

    def _query_athena(self) -> None:
        _, rows = self.clients.athena.query(f'SELECT count(*) FROM "{self.namespace}"."{CANARY}"')  # noqa: S608 (checked names)
        _require_rows("Athena", rows[0][0] if rows else 0)

    def _create_in_snowflake(self) -> None:
        self.clients.snowflake.ensure_iceberg_table(*self.ref.shown, *self.ref.identifier, comment=COMMENT)

    def _query_snowflake(self) -> None:
        state = self.clients.snowflake.table_state(*self.ref.shown)
        _require_rows("Snowflake", state.row_count if state else 0)


def _require_rows(engine: str, rows: int) -> None:
    if rows != ROWS:
        raise LakehouseError(
            f"{engine} counts {rows} rows in the canary table, which has {ROWS}. The table is removed. Check that "
            f"{engine} reads the Glue catalog and region of the deployment"
        )
