"""The OpenSearch sink: writes the rows of a cut as documents with external versions, then the batch to the ledger.

``open``:

1. Connect; reject a server that is not OpenSearch 2 or later.
2. Claim the epoch in the ledger. Raise ``Fenced`` if a later epoch has begun.
3. For each lane: reject an alias of another owner, put the index template, create the first index and the aliases, and
   check every index that is written to.

``write``, for each cut with rows:

1. ``live``: check in the ledger that no later epoch has begun and no other process has written this batch, and read
   which indexes each lane is written to.
2. ``sent``: send the documents to each of those indexes, with version ``epoch << 40 | batch``, deletions too.
3. ``recorded``: write epoch, batch, digest and index names to the ledger.

A crash after or within a step leaves a part of the cut's documents. Spark runs the cut again with equal rows: an
existing document already has this version (a conflict, and no change), the missing ones are written. So the contents of
an index after a cut do not depend on crashes. A delayed request of a dead process has lower versions, so it changes
nothing. For a deleted document the server remembers the version for ``index.gc_deletes``; ``open`` checks that this is
longer than the longest delay of a request.

Written documents are durable: the server responds to a bulk request when the primary shards (and replicas, if any)
have it on disk. The sink does not wait for the index's refresh.

A cut without rows only reads the live indexes, and ignores an unreachable server, so that a rebuild of an idle app's
index can continue.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from streamcore.cuts.cut_id import CutId
from streamcore.cuts.writer_id import WriterId
from streamcore.errors import ConfigError, Retryable
from streamcore.sinks.opensearch import indexes
from streamcore.sinks.opensearch.bulk import BulkCounters, BulkSender
from streamcore.sinks.opensearch.bulk_lines import LaneDocuments, document_version
from streamcore.sinks.opensearch.client import SearchClient
from streamcore.sinks.opensearch.indexes import IndexLane
from streamcore.sinks.opensearch.ledger import IndexLedger, IndexLedgerEntry
from streamcore.sinks.opensearch.retries import RequestRetries
from streamcore.sinks.opensearch.settings import OpenSearchSettings
from streamcore.sinks.sink import Guarantee, RejectedRow, SinkHooks, WriteOutcome, WriteResult

#: The oldest versions whose protocol the sink speaks, by the name of the server.
_MIN_VERSIONS = {"opensearch": (2, 0), "elasticsearch": (7, 10)}
#: Time-out of the requests of a cut without rows, which must not wait long for a server that hangs.
_QUICK_TIMEOUT_MS = 1_000


@dataclass(slots=True)
class _Session:
    """The connections between ``open`` and ``close``. ``quick``: a client with a short time-out. ``recorded``: the
    index names in the ledger, as last written."""

    owner: WriterId
    client: SearchClient
    quick: SearchClient
    sender: BulkSender
    recorded: tuple[str, ...] = ()

    def ledger(self, client: SearchClient, sink: str) -> IndexLedger:
        """Return the app's ledger, read through one of the clients."""
        return IndexLedger(client, self.owner.app, sink)


class OpenSearchSink:
    """Writes some lanes to OpenSearch indexes; a ``Sink``. ``columns``: the schema of each lane's rows."""

    def __init__(self, settings: OpenSearchSettings, columns: Mapping[str, pa.Schema], hooks: SinkHooks) -> None:
        self._settings = settings
        self._columns = {lane: columns[lane] for lane in settings.indexes if lane in columns}
        self._hooks = hooks
        self._session: _Session | None = None
        self.counts = BulkCounters()
        _check_columns(settings, self._columns)

    @property
    def name(self) -> str:
        """The sink's name in the settings."""
        return self._settings.name

    @property
    def lanes(self) -> frozenset[str]:
        """The lanes that have an index."""
        return frozenset(self._settings.indexes)

    @property
    def guarantee(self) -> Guarantee:
        """Idempotent: writing a cut again leaves equal contents."""
        return Guarantee.IDEMPOTENT

    def open(self, owner: WriterId) -> CutId | None:
        """Run steps 1 to 3 of ``open`` above; return the last cut in the ledger, or None."""
        self.close()
        document_version(owner.epoch, 0)
        settings = self._settings
        client = SearchClient(settings.login)
        sender = BulkSender(client, settings.limits, settings.patience, self._hooks, self.counts)
        quick = SearchClient(
            replace(settings.login, request_timeout_ms=min(_QUICK_TIMEOUT_MS, settings.request_timeout_ms))
        )
        self._session = _Session(owner, client, quick, sender)
        try:
            return self._retries().run(self._open)
        except BaseException:
            self.close()
            raise

    def write(self, cut: CutId, rows: Mapping[str, pa.Table]) -> WriteResult:
        """Run steps 1 to 3 of ``write`` above."""
        session = self._require_session()
        if not any(table.num_rows for table in rows.values()):
            self._follow_quietly(session, cut)
            return WriteResult(WriteOutcome.EMPTY)
        # 1. Check the epoch, and read the live indexes.
        live = self._retries().run(lambda: self._live_indexes(session, session.client, cut))
        self._hooks.on_step("live")
        # 2. The documents.
        version, count, rejected = document_version(session.owner.epoch, cut.batch), 0, list[RejectedRow]()
        for lane, table in sorted(rows.items()):
            documents = LaneDocuments(lane, table, self._settings.indexes[lane], version)
            lane_rejected, written = self._send(session, lane, documents, live[lane])
            rejected += lane_rejected
            count += written
        self._hooks.on_step("sent")
        # 3. The ledger.
        self._retries().run(lambda: self._record_cut(session, session.client, cut, live))
        self._hooks.on_step("recorded")
        return WriteResult(WriteOutcome.COMMITTED, count, rejected)

    def close(self) -> None:
        """Close connections and end threads."""
        session, self._session = self._session, None
        if session is not None:
            session.sender.close()
            session.client.close()
            session.quick.close()

    def _require_session(self) -> _Session:
        if self._session is None:
            raise ConfigError(f"sink {self.name} is not open; call open() before write()")
        return self._session

    def _retries(self) -> RequestRetries:
        return RequestRetries(self._settings.patience, self._hooks, self._require_session().client.server)

    def _open(self) -> CutId | None:
        session = self._require_session()
        # 1. The server.
        _check_server(session.client)
        self._hooks.on_step("server")
        # 2. The epoch.
        last = session.ledger(session.client, self.name).claim(session.owner)
        self._hooks.on_step("claimed")
        # 3. Templates, indexes, aliases.
        for name, spec in self._settings.indexes.items():
            lane = IndexLane(session.owner.app, name, spec, self._columns[name])
            indexes.check_alias(session.client, lane)
            indexes.put_template(session.client, lane)
            indexes.ensure_index(session.client, lane)
            for index in indexes.live_indexes(session.client, spec.alias):
                indexes.check_index(session.client, lane, index, self._settings.late_ms)
        self._hooks.on_step("checked")
        return last

    def _live_indexes(self, session: _Session, client: SearchClient, cut: CutId) -> dict[str, tuple[str, ...]]:
        """Check in the ledger that this process may write the cut; return the live indexes of each lane."""
        session.ledger(client, self.name).check(session.owner.epoch, cut)
        specs = self._settings.indexes.items()
        return {lane: indexes.live_indexes(client, spec.alias) for lane, spec in specs}

    def _send(
        self, session: _Session, lane: str, documents: LaneDocuments, live: tuple[str, ...]
    ) -> tuple[list[RejectedRow], int]:
        """Send the last row of each document to every live index; if an index rejects it, the row before it.

        Returns the rows that any of the indexes rejected, and the number of documents written or deleted.
        """
        rejected = {row.row: row for row in documents.rejected}
        missing = 0
        for index in live:
            missing_here = 0
            newly_rejected = session.sender.send(index, documents.last())
            while newly_rejected:
                rejected |= {row: RejectedRow(lane, row, code, reason) for row, code, reason in newly_rejected}
                previous = documents.before([row for row, _, _ in newly_rejected])
                missing_here += len(newly_rejected) - len(previous)
                newly_rejected = session.sender.send(index, previous)
            missing = max(missing, missing_here)
        return [rejected[row] for row in sorted(rejected)], documents.ids - missing

    def _record_cut(
        self, session: _Session, client: SearchClient, cut: CutId, live: Mapping[str, tuple[str, ...]]
    ) -> None:
        """Write the cut and the live indexes to the ledger."""
        names = _names(live)
        session.ledger(client, self.name).write(IndexLedgerEntry(session.owner.epoch, cut, names))
        session.recorded = names

    def _follow_quietly(self, session: _Session, cut: CutId) -> None:
        """In a cut without rows, write changed live indexes to the ledger, for a rebuild that waits for it. An
        unreachable server is ignored, because the cut has nothing to write."""
        with contextlib.suppress(Retryable), self._hooks.outages.attempt(session.quick.server, str(cut)):
            live = self._live_indexes(session, session.quick, cut)
            if _names(live) != session.recorded:
                self._record_cut(session, session.quick, cut, live)


def _names(live: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the distinct names of the live indexes of all lanes, sorted."""
    return tuple(sorted({index for indexes_of_lane in live.values() for index in indexes_of_lane}))


def _check_server(client: SearchClient) -> None:
    version = client.request("GET", "/").get("version", {})
    number = str(version.get("number", "0"))
    # Elasticsearch names no distribution; from version 7.14 on its answers name the product.
    name = str(version.get("distribution", "elasticsearch" if "build_flavor" in version else "no distribution"))
    needed = _MIN_VERSIONS.get(name)
    if needed is None or tuple(int(part) for part in number.split(".")[:2]) < needed:
        raise ConfigError(
            f"opensearch: the server reports {name} {number}; this sink needs OpenSearch 2, or Elasticsearch 7.10, or "
            "a later version"
        )


def _check_columns(settings: OpenSearchSettings, columns: Mapping[str, pa.Schema]) -> None:
    for lane, spec in settings.indexes.items():
        if lane not in columns:
            raise ConfigError(f"sink {settings.name}: lane {lane!r} has no columns; known are {sorted(columns)}")
        names = columns[lane].names
        wanted = [*spec.id, *([spec.deleted] if spec.deleted is not None else [])]
        if missing := [name for name in wanted if name not in names]:
            raise ConfigError(f"sink {settings.name}: lane {lane} has no column {missing[0]!r}; it has {names}")
        if unknown := [name for name in spec.properties if name not in names]:
            raise ConfigError(
                f"sink {settings.name}: lane {lane}: properties: there is no column {unknown[0]!r}; it has {names}"
            )
        if spec.deleted is not None and not pa.types.is_boolean(columns[lane].field(spec.deleted).type):
            raise ConfigError(f"sink {settings.name}: lane {lane}: column {spec.deleted!r} must be boolean")
