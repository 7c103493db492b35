"""The OpenSearch sink: the rows of a cut as documents with external versions, then a note in the ledger.

``open``:

1. Reach the server; refuse a server that is no OpenSearch 2 or later.
2. Claim the epoch in the ledger: ``Fenced`` when a later one has begun.
3. For each lane: refuse an alias of another owner, put the template, make the first index and the aliases, and check
   every index that is written to.

``write``, for each cut with rows:

1. ``live``: ask the ledger whether the epoch is ours still, and which indexes each lane's live updates go to.
2. ``sent``: send the documents, to each of those indexes. Version: ``epoch << 40 | batch``, for deletions too.
3. ``noted``: write the ledger: epoch, batch and the indexes.

A crash just after each step, or in the middle of one, leaves a part of the cut's documents. Spark runs the cut again
with the same rows: a document that is there has this very version already (a conflict, and no change), the others are
written now. So the contents of an index after a cut are the same whatever happened on the way. A request of a process
that died may arrive after its successor has gone on; its versions are lower, so it changes nothing, and for a deleted
document the server remembers that for ``index.gc_deletes``, which ``open`` checks against the longest way of a request.

Durable: the server answers a bulk request when it is on the disk of the primary shards (and of replicas, where there
are some). Not waited for: the index's refresh.

A cut without rows asks for the live indexes only, quietly, so that a rebuild of an idle app's index can go on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

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
from streamcore.writer_id import WriterId

_MIN_VERSION = 2
#: For a question that a cut without rows asks: it does not wait for a server that hangs.
_QUICK_MS = 1_000


@dataclass(slots=True)
class _Session:
    """The parts that exist between ``open`` and ``close``."""

    owner: WriterId
    client: SearchClient
    quick: SearchClient
    sender: BulkSender
    noted: tuple[str, ...] = ()

    def ledger(self, client: SearchClient, sink: str) -> IndexLedger:
        """Return the app's ledger, read through one of the clients."""
        return IndexLedger(client, self.owner.app, sink)


class OpenSearchSink:
    """``columns``: those of each lane, as they come. A ``Sink``."""

    def __init__(self, settings: OpenSearchSettings, columns: Mapping[str, pa.Schema], hooks: SinkHooks) -> None:
        self._settings = settings
        self._columns = {lane: columns[lane] for lane in settings.indexes if lane in columns}
        self._hooks = hooks
        self._session: _Session | None = None
        self.counts = BulkCounters()
        _check_columns(settings, self._columns)

    @property
    def name(self) -> str:
        """Of the settings."""
        return self._settings.name

    @property
    def lanes(self) -> frozenset[str]:
        """Those with an index."""
        return frozenset(self._settings.indexes)

    @property
    def guarantee(self) -> Guarantee:
        """Writing a cut again ends in the same contents."""
        return Guarantee.IDEMPOTENT

    def open(self, owner: WriterId) -> int | None:
        """Run steps 1 to 3 of opening; return the last batch in the ledger."""
        self.close()
        document_version(owner.epoch, 0)
        settings = self._settings
        client = SearchClient(settings.login)
        sender = BulkSender(client, settings.limits, settings.patience, self._hooks, self.counts)
        quick = SearchClient(replace(settings.login, request_timeout_ms=min(_QUICK_MS, settings.request_timeout_ms)))
        self._session = _Session(owner, client, quick, sender)
        try:
            return self._attempts().run(self._open)
        except BaseException:
            self.close()
            raise

    def write(self, batch: int, rows: Mapping[str, pa.Table]) -> WriteResult:
        """Run steps 1 to 3 of writing."""
        session = self._require_session()
        if not any(table.num_rows for table in rows.values()):
            self._follow_quietly(session, batch)
            return WriteResult(WriteOutcome.EMPTY)
        # 1. Is it ours still, and where does it go?
        live = self._attempts().run(lambda: self._live(session, session.client))
        self._hooks.on_step("live")
        # 2. The documents.
        version, count, refused = document_version(session.owner.epoch, batch), 0, list[RejectedRow]()
        for lane, table in sorted(rows.items()):
            documents = LaneDocuments(lane, table, self._settings.indexes[lane], version)
            found, there = self._send(session, lane, documents, live[lane])
            refused += found
            count += there
        self._hooks.on_step("sent")
        # 3. The note.
        self._attempts().run(lambda: self._note(session, session.client, batch, live))
        self._hooks.on_step("noted")
        return WriteResult(WriteOutcome.COMMITTED, count, refused)

    def close(self) -> None:
        """Let go of connections and threads."""
        session, self._session = self._session, None
        if session is not None:
            session.sender.close()
            session.client.close()
            session.quick.close()

    def _require_session(self) -> _Session:
        if self._session is None:
            raise ConfigError(f"sink {self.name} is not open; call open() before write()")
        return self._session

    def _attempts(self) -> RequestRetries:
        return RequestRetries(self._settings.patience, self._hooks)

    def _open(self) -> int | None:
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

    def _live(self, session: _Session, client: SearchClient) -> dict[str, tuple[str, ...]]:
        session.ledger(client, self.name).check(session.owner.epoch)
        specs = self._settings.indexes.items()
        return {lane: indexes.live_indexes(client, spec.alias) for lane, spec in specs}

    def _send(
        self, session: _Session, lane: str, documents: LaneDocuments, live: tuple[str, ...]
    ) -> tuple[list[RejectedRow], int]:
        """Return the documents refused by any of the indexes, and how many documents are there now (or are deleted)."""
        refused = {one.row: one for one in documents.rejected}
        missing = 0
        for index in live:
            gone = 0
            found = session.sender.send(index, documents.last())
            while found:
                refused |= {row: RejectedRow(lane, row, code, reason) for row, code, reason in found}
                before = documents.before([row for row, _, _ in found])
                gone += len(found) - len(before)
                found = session.sender.send(index, before)
            missing = max(missing, gone)
        return [refused[row] for row in sorted(refused)], documents.ids - missing

    def _note(self, session: _Session, client: SearchClient, batch: int, live: Mapping[str, tuple[str, ...]]) -> None:
        named = _names(live)
        session.ledger(client, self.name).write(IndexLedgerEntry(session.owner.epoch, batch, named))
        session.noted = named

    def _follow_quietly(self, session: _Session, batch: int) -> None:
        """Record a cut without rows if the server answers: it needs no server, but a rebuild may wait for it."""
        with contextlib.suppress(Retryable):
            live = self._live(session, session.quick)
            if _names(live) != session.noted:
                self._note(session, session.quick, batch, live)


def _names(live: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(sorted({index for found in live.values() for index in found}))


def _check_server(client: SearchClient) -> None:
    version = client.request("GET", "/").get("version", {})
    number = str(version.get("number", "0"))
    if version.get("distribution") != "opensearch" or int(number.split(".", maxsplit=1)[0]) < _MIN_VERSION:
        raise ConfigError(
            f"opensearch: the server says it is {version.get('distribution', 'something else')} {number}; "
            f"this sink needs OpenSearch {_MIN_VERSION} or later"
        )


def _check_columns(settings: OpenSearchSettings, columns: Mapping[str, pa.Schema]) -> None:
    for lane, spec in settings.indexes.items():
        if lane not in columns:
            raise ConfigError(f"sink {settings.name}: lane {lane!r} has no columns; known are {sorted(columns)}")
        names = columns[lane].names
        wanted = [*spec.id, *([spec.deleted] if spec.deleted is not None else [])]
        if missing := [name for name in wanted if name not in names]:
            raise ConfigError(f"sink {settings.name}: lane {lane} has no column {missing[0]!r}; it has {names}")
        if spec.deleted is not None and not pa.types.is_boolean(columns[lane].field(spec.deleted).type):
            raise ConfigError(f"sink {settings.name}: lane {lane}: column {spec.deleted!r} must be boolean")
