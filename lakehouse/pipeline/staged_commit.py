"""The only code that publishes: rows are staged on a branch, audited there, and become main's in one commit."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from lakehouse.core import naming
from lakehouse.core.batch import Batch
from lakehouse.core.errors import CommitConflict, LakehouseError, UnclearState
from lakehouse.pipeline import audit
from lakehouse.pipeline.audit import AuditFailed, Finding, Staged
from lakehouse.pipeline.clients import Clients

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from lakehouse.core.counts import Counts
    from spark.write import Target

T = TypeVar("T")

Phase = Literal["schema", "branch", "write", "audit", "dead_letters", "publish", "published"]
"""The phases of a batch, in order."""

OnPhase = Callable[[Phase], None]
"""Called when a phase begins."""

Audit = Callable[["Table", int], list[Finding]]
"""Checks rows, given the table and the snapshot that has them."""

RESERVED = ("main", naming.OFFSETS_TAG)


def no_report(phase: Phase) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class Stage:
    """A branch that rows were written to.

    Attributes:
        target: The branch.
        start: The snapshot that it was at before; None where the table had none.
    """

    target: Target
    start: int | None


@dataclass(frozen=True)
class Audited:
    """A branch after its audit.

    Attributes:
        table: The table, as it was loaded for the audit.
        branch: The branch's name.
        snapshot_id: Its snapshot.
        findings: The results of the guards, then of the caller's audits.
    """

    table: Table
    branch: str
    snapshot_id: int
    findings: list[Finding]

    def require_passed(self, then: str = "the next run replaces the branch") -> None:
        """Stop where a blocking check failed.

        Args:
            then: What happens next, for the error.

        Raises:
            AuditFailed: A check failed.
        """
        if any(finding.blocks for finding in self.findings):
            raise AuditFailed(self.table.name()[-1], self.branch, self.findings, then)


@dataclass(frozen=True)
class StagedCommit:
    """One publication in one table.

    Attributes:
        table: The table's name.
        base: The snapshot of main that the caller's decisions are about; None where main has none. Main is changed only
            if it is still there.
        source: The offsets that the rows are from. Their topic must still be the same when they are audited.
        key: The columns that are null in no row.
        on_phase: Called when a phase begins.
    """

    clients: Clients
    namespace: str
    table: str
    base: int | None
    source: Batch
    key: tuple[str, ...] = ()
    on_phase: OnPhase = no_report

    def stage(
        self,
        table: Table,
        write: Callable[[Target], T],
        summary: Mapping[str, str],
        branch: str | None = None,
    ) -> tuple[Stage, T]:
        """Write rows to a branch: a new one in place of what an interrupted writer left, or the one that is named.

        Args:
            table: The table as it was loaded just now.
            summary: Properties for the summary of the snapshot that completes a write.
            branch: The name of a branch that stays, and is never published.

        Returns:
            The branch, and what `write` returned.

        Raises:
            CommitConflict: Another writer dropped the branch.
            LakehouseError: Rows on a branch of the name would be published unaudited, or be dropped.
        """
        from spark.write import Target

        self.on_phase("branch")
        name, start = (self._new(table), self.base) if branch is None else self._kept(table, branch)
        target = Target(self.namespace, self.table, name, summary)
        self.on_phase("write")
        with self._undisturbed(name):
            return Stage(target, start), write(target)

    def audit(self, stage: Stage, counts: Counts, offsets: int, *audits: Audit, writes: int = 1) -> Audited:
        """Check a branch: its topic, counts, files and keys in any case, and what the caller asks for.

        Args:
            counts: What became of the records, as Spark counted while it wrote.
            offsets: The most records that were read.
            audits: More checks.
            writes: How many writes there were.

        Raises:
            UnclearState: The topic was deleted or recreated meanwhile.
            CommitConflict: Another writer published before the branch was made, or dropped it.
        """
        self.on_phase("audit")
        self._require_same_topic()
        branch = stage.target.branch
        spark = self.clients.spark.session(self.clients.catalog.spark_settings())
        with self._undisturbed(branch):
            table = self.clients.catalog.load(self.namespace, self.table)
            if table is None or branch not in table.metadata.refs:
                raise self._dropped(branch)
            staged = Staged(branch, stage.start, stage.target.properties, writes, offsets, counts)
            findings = audit.audit(spark, table, self.key, staged)
            snapshot_id = table.metadata.refs[branch].snapshot_id
            for check in audits:
                findings += check(table, snapshot_id)
        return Audited(table, branch, snapshot_id, findings)

    def publish(
        self, audited: Audited, counts: Mapping[str, int] | None = None, properties: Mapping[str, str] | None = None
    ) -> Table:
        """Make an audited branch main; see `Catalog.publish`.

        Raises:
            AuditFailed: The rows did not pass their audit.
            CommitConflict: Main or the branch changed meanwhile.
        """
        audited.require_passed()
        self.on_phase("publish")
        table = self.clients.catalog.publish(audited.table, audited.branch, self.base, counts, properties)
        self.on_phase("published")
        return table

    def _new(self, table: Table) -> str:
        from spark.write import create_branch

        catalog = self.clients.catalog
        catalog.drop_staging(table)
        branch = f"{naming.STAGING_PREFIX}{uuid.uuid4().hex[:12]}"
        create_branch(self.clients.spark.session(catalog.spark_settings()), self.namespace, self.table, branch)
        return branch

    def _kept(self, table: Table, branch: str) -> tuple[str, int]:
        from spark.write import create_branch

        ref = table.metadata.refs.get(branch)
        is_tag = ref is not None and ref.snapshot_ref_type != "branch"
        if branch in RESERVED or branch.startswith(naming.STAGING_PREFIX) or is_tag:
            raise LakehouseError(
                f"'{branch}' cannot be the branch of a replay: main, tags and branches named {naming.STAGING_PREFIX}* "
                f"belong to ingestion. Nothing was written. Choose another name, or leave the branch out to publish "
                f"after an audit"
            )
        if ref is None:
            spark = self.clients.spark.session(self.clients.catalog.spark_settings())
            create_branch(spark, self.namespace, self.table, branch)
            table.refresh()
        return branch, table.metadata.refs[branch].snapshot_id

    def _require_same_topic(self) -> None:
        topic = self.clients.kafka.describe([self.source.topic]).get(self.source.topic)
        if topic is None or topic.topic_id != self.source.topic_id:
            raise UnclearState(
                f"Topic '{self.source.topic}' was deleted or recreated while offsets of it were read. Nothing was "
                f"published. If that was on purpose, continue with `lakehouse resume`, or drop the table to start over"
            )

    @contextmanager
    def _undisturbed(self, branch: str) -> Iterator[None]:
        """Raise CommitConflict for whatever fails because another writer dropped the branch."""
        try:
            yield
        except Exception as error:
            table = self.clients.catalog.load(self.namespace, self.table)
            if table is None or branch in table.metadata.refs:
                raise
            raise self._dropped(branch) from error

    def _dropped(self, branch: str) -> CommitConflict:
        return CommitConflict(
            f"Another writer took over {self.namespace}.{self.table} and dropped branch '{branch}' while this batch "
            f"was prepared. The batch was not published; run it again"
        )
