"""The only code that publishes: stage rows on a branch, audit the branch, and fast-forward main to it in one commit."""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeVar

from pyiceberg.table import Table

from lakehouse.core.errors import CommitConflict, LakehouseError, UnclearState
from lakehouse.core.offsets.batch import Batch, Counts, Positions
from lakehouse.core.table_protocol import OFFSETS_TAG, REPLAY_TAG, STAGING_PREFIX
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.commits import audit
from lakehouse.pipeline.commits.audit import AuditFailed, CheckResult, Staged
from lakehouse.pipeline.engine_values import CountsLost, JobFailed, Target
from resources.iceberg.commits import dropped_error

T = TypeVar("T")

Phase = Literal["schema", "branch", "write", "audit", "dead_letters", "publish", "published"]
"""The phases of a batch, in order."""

OnPhase = Callable[[Phase], None]
"""Called when a phase begins."""

Audit = Callable[["Table", int], list[CheckResult]]
"""Checks the rows of a table's snapshot, given by its id."""

WRITES = 3
"""Maximum number of times that rows are written whose counts were lost."""

RESERVED = ("main", OFFSETS_TAG, REPLAY_TAG)


def no_report(phase: Phase) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class Stage:
    """A branch that rows were written to.

    Attributes:
        target: The branch.
        start: The snapshot of the branch before the write; None if the table had none.
    """

    target: Target
    start: int | None


@dataclass(frozen=True)
class Audited:
    """A branch after its audit.

    Attributes:
        table: The table as loaded for the audit.
        branch: The name of the branch.
        snapshot_id: The snapshot of the branch.
        findings: Results of the built-in guards, then of the caller's audits.
    """

    table: Table
    branch: str
    snapshot_id: int
    findings: list[CheckResult]

    def require_passed(self) -> None:
        """Raise AuditFailed if a blocking check failed."""
        if any(finding.blocks for finding in self.findings):
            name = self.table.name()[-1]
            raise AuditFailed(name, self.branch, self.findings, "the next run replaces the branch")


@dataclass(frozen=True)
class StagedCommit:
    """One publication in one table.

    Attributes:
        clients: Clients of the systems.
        ref: The table.
        base: The snapshot of main that the caller's decisions are based on; None if main has none. Publishing fails if
            main has moved since.
        source: The offsets that the rows come from. Their topic must not have been recreated when the rows are audited.
        key: The columns that must not be null.
        on_phase: Called when a phase begins.
        place: The columns with the partition and the offset of a row.
    """

    clients: Clients
    ref: TableRef
    base: int | None
    source: Batch
    key: tuple[str, ...] = ()
    on_phase: OnPhase = no_report
    place: tuple[str, ...] = ()

    def stage(
        self, table: Table, write: Callable[[Target], T], summary: Mapping[str, str], branch: str | None = None
    ) -> tuple[Stage, T]:
        """Write rows to a new staging branch, or to a named branch.

        A write whose counts were lost is repeated on another branch. The audit drops the first one.

        Args:
            table: The table as just loaded.
            write: Writes the rows to the branch.
            summary: Properties for the summary of the snapshot that completes a write.
            branch: The name of a branch that is kept and never published.

        Returns:
            The branch, and the result of `write`.

        Raises:
            CommitConflict: Another writer dropped the branch, or the table.
            LakehouseError: The branch name is reserved: its rows would be published without an audit, or dropped.
            Unreachable: The engine did not send the counts of the rows.
        """
        remaining = WRITES if branch is None else 1
        while True:
            try:
                return self._stage(table, write, summary, branch)
            except CountsLost as lost:
                remaining -= 1
                if not remaining:
                    raise lost.failure from lost

    def _stage(
        self, table: Table, write: Callable[[Target], T], summary: Mapping[str, str], branch: str | None
    ) -> tuple[Stage, T]:
        self.on_phase("branch")
        with self._detect_lost_branch(None):
            name, start = (self._new(), self.base) if branch is None else self._kept(table, branch)
        target = Target(self.ref, name, summary)
        self.on_phase("write")
        with self._detect_lost_branch(name):
            return Stage(target, start), write(target)

    def audit(
        self,
        stage: Stage,
        writes: Sequence[Counts],
        offsets: int,
        *audits: Audit,
        since: Positions | None = None,
    ) -> Audited:
        """Run the built-in guards on a branch (topic, counts, files and keys), then the caller's audits.

        Other staging branches are dropped first, so that no other writer publishes meanwhile. They belong to writers
        that were interrupted, or that write the same batch.

        Args:
            stage: The branch.
            writes: Outcomes of the records of each write, in order, as Spark counted them.
            offsets: The number of offsets that were read: the upper bound of the number of records.
            audits: Further checks.
            since: The first offset of each partition that was read; the last one is that of the source. None if rows
                of any offset may be written.

        Raises:
            CommitConflict: Another writer published before the branch was created, or dropped the branch.
            UnclearState: The topic was deleted or recreated meanwhile.
        """
        self.on_phase("audit")
        self._require_same_topic()
        branch = stage.target.branch
        with self._detect_lost_branch(branch):
            table = self.clients.catalog.load(self.ref)
            if table is None or self._is_lost(table, branch):
                raise self._dropped(branch)
            table = self._exclude_others(table, branch)
            extent = {} if since is None else {p: (since.get(p, 0), end) for p, end in self.source.end.items()}
            place = () if since is None else self.place
            staged = Staged(branch, stage.start, stage.target.properties, offsets, writes, place, extent)
            findings = audit.audit(self.clients.engine, table, self.key, staged)
            snapshot_id = table.metadata.refs[branch].snapshot_id
            try:
                for check in audits:
                    findings += check(table, snapshot_id)
            except JobFailed:
                # The engine cannot read a file that is missing, which the guards have found.
                if not audit.is_incomplete(findings):
                    raise
        return Audited(table, branch, snapshot_id, findings)

    def publish(
        self, audited: Audited, counts: Mapping[str, int] | None = None, properties: Mapping[str, str] | None = None
    ) -> Table:
        """Fast-forward main to an audited branch; see `Catalog.publish`.

        Raises:
            AuditFailed: The rows did not pass their audit.
            CommitConflict: main or the branch changed meanwhile.
        """
        audited.require_passed()
        self.on_phase("publish")
        table = self.clients.catalog.publish(audited.table, audited.branch, self.base, counts, properties)
        self.on_phase("published")
        return table

    def _new(self) -> str:
        branch = f"{STAGING_PREFIX}{uuid.uuid4().hex[:12]}"
        # Not at the head of main, which may have moved since: if main is then rolled back to the base and the branch
        # dropped, Spark recreates it there, and no guard would find that the rows were read from another snapshot.
        self.clients.engine.create_branch(self.ref, branch, self.base)
        return branch

    def _exclude_others(self, table: Table, branch: str) -> Table:
        """Prevent other writers from publishing what they have staged, here or as dead letters of this table.

        Of two writers, the one that creates its branch later sees the other one here, because it reads the table
        afterwards. The other one requires its branch after it has staged its dead letters, so either it finds that the
        branch was dropped, or its dead letters are found and dropped here.
        """
        if not branch.startswith(STAGING_PREFIX):
            return table
        catalog, remaining = self.clients.catalog, set(table.metadata.refs)
        table = catalog.drop_staging(table, kept=branch)
        if remaining != set(table.metadata.refs) and (letters := catalog.load(self.ref.dead_letters)):
            catalog.drop_staging(letters)
        return table

    @staticmethod
    def _is_lost(table: Table, branch: str) -> bool:
        """Return whether a branch was dropped, or changed through another library.

        If Spark commits to a branch that was dropped, Iceberg creates it again, without the rows and commits that Spark
        has seen on it, and without the age limit of the dropped one. Commits of pyiceberg remove the limit, too.
        """
        ref = table.metadata.refs.get(branch)
        return ref is None or (branch.startswith(STAGING_PREFIX) and ref.max_ref_age_ms is None)

    def _kept(self, table: Table, branch: str) -> tuple[str, int]:
        ref = table.metadata.refs.get(branch)
        is_tag = ref is not None and ref.snapshot_ref_type != "branch"
        if branch in RESERVED or branch.startswith(STAGING_PREFIX) or is_tag:
            raise LakehouseError(
                f"'{branch}' cannot be the branch of a replay: main, tags and branches named {STAGING_PREFIX}* "
                f"are reserved for ingestion. Nothing was written. Choose another name, or omit the branch to publish "
                f"to main after an audit"
            )
        if ref is None:
            self.clients.engine.create_branch(self.ref, branch)
            table = self.clients.catalog.refreshed(table)
            if branch not in table.metadata.refs:
                raise self._dropped(branch)
        return branch, table.metadata.refs[branch].snapshot_id

    def _require_same_topic(self) -> None:
        topic = self.clients.kafka.describe([self.source.topic]).get(self.source.topic)
        if topic is None or topic.topic_id != self.source.topic_id:
            raise UnclearState(
                f"Topic '{self.source.topic}' was deleted or recreated while its records were read. Nothing was "
                f"published. If that was intended, run `lakehouse resume`, or drop the table to start over"
            )

    @contextmanager
    def _detect_lost_branch(self, branch: str | None) -> Iterator[None]:
        """Raise CommitConflict in place of any error that occurs because another writer dropped the table or the
        branch, and Unreachable if the catalog or a file does not respond.

        Args:
            branch: The branch; None while it does not exist yet.
        """
        try:
            with self.clients.catalog.translate_errors():
                yield
        except Exception as error:
            table = self.clients.catalog.load(self.ref)
            if table is None:
                raise dropped_error(str(self.ref)) from error
            if branch is None and self.base is not None and table.snapshot_by_id(self.base) is None:
                raise CommitConflict(
                    f"Snapshot {self.base} of {self.ref}, on which this batch is based, was expired meanwhile. The "
                    f"batch was not published. Retry the run or command"
                ) from error
            if branch is None or branch in table.metadata.refs:
                raise
            raise self._dropped(branch) from error

    def _dropped(self, branch: str) -> CommitConflict:
        return CommitConflict(
            f"Another writer dropped branch '{branch}' of {self.ref}, or another program committed to it, while this "
            f"batch was prepared. The batch was not published. Retry the run or command"
        )
