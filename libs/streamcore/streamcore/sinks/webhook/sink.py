"""Posts each cut's rows to HTTP endpoints at least once, in order, one request at a time.

A request has the rows of one lane from ``first`` on, as a JSON array. Its id is the same whenever the rows are sent:
``<app>-<lane>-<epoch>-<batch>-<digest>-<first>-<rows>``. So a receiver that remembers the ids, or the place of each row
in its cut, stores each row once; no receiver can be made to, hence "at least once".

For each request:

1. 2xx: the rows are delivered.
2. 400, 413 or 422: the rows are sent in halves, so that only those are rejected that the receiver rejects. Rejected
   rows become dead letters of the cut; the stream goes on.
3. No answer, or any other, such as 401 of a wrong token: the same request is sent again, with growing pauses, for
   ``patience.recovery_ms``. A receiver that took the rows, and whose answer was lost, gets them again with the same id.

After a crash, the whole cut is sent again. A process of an earlier epoch cannot be fenced at the receiver: it asks
``SinkHooks.still_owner`` before the first request of a cut and before each retry, and may have one request under way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

import polars as pl
import pyarrow as pa

from streamcore.cuts.cut_id import CutId
from streamcore.cuts.writer_id import WriterId
from streamcore.errors import ConfigError
from streamcore.sinks.retrying import retry
from streamcore.sinks.sink import Guarantee, RejectedRow, SinkHooks, WriteOutcome, WriteResult, sink_dependency
from streamcore.sinks.webhook.client import WebhookClient, WebhookRejection
from streamcore.sinks.webhook.settings import WebhookSettings, WebhookSpec
from streamcore.wire.lane_rows import LaneRows


@dataclass(slots=True)
class _Budget:
    """Further requests that may be spent on telling a request's rejected rows from the others."""

    requests: int


@dataclass(frozen=True, slots=True)
class _Batch:
    """The rows of one request, as JSON. ``first``: place of the first in its lane."""

    first: int
    rows: Sequence[bytes]

    @property
    def body(self) -> bytes:
        return b"[" + b",".join(self.rows) + b"]"


class WebhookSink:
    """Posts the rows of some lanes. ``columns``: the schema of each lane's rows."""

    guarantee = Guarantee.AT_LEAST_ONCE

    def __init__(
        self, settings: WebhookSettings, columns: Mapping[str, pa.Schema], hooks: SinkHooks | None = None
    ) -> None:
        if unlike := settings.endpoints.keys() ^ columns.keys():
            raise ConfigError(f"webhook sink {settings.name}: lane {min(unlike)!r} needs both an endpoint and columns")
        self._settings = settings
        self._hooks = hooks or SinkHooks()
        self._owner: WriterId | None = None
        self._clients: dict[str, WebhookClient] = {}

    @property
    def name(self) -> str:
        """The sink's name."""
        return self._settings.name

    @property
    def lanes(self) -> frozenset[str]:
        """The lanes that have an endpoint."""
        return frozenset(self._settings.endpoints)

    def open(self, owner: WriterId) -> CutId | None:
        """Read the secrets. Return None: the sink does not know what was delivered. Nothing is sent."""
        self.close()
        self._owner = owner
        for lane, spec in self._settings.endpoints.items():
            self._clients[lane] = WebhookClient(
                spec.url,
                spec.read_headers(),
                spec.read_signing_key(),
                self._settings.timeout_ms,
                self._settings.ca_file,
            )
        return None

    def write(self, cut: CutId, rows: Mapping[str, pa.Table]) -> WriteResult:
        """Post the rows of the cut, lane by lane. Rows whose request was answered 2xx are delivered on return."""
        count = sum(table.num_rows for table in rows.values())
        if not count:
            return WriteResult(WriteOutcome.EMPTY)
        self._hooks.still_owner()
        rejected = [row for lane in sorted(rows) for row in self._write_lane(cut, lane, rows[lane])]
        return WriteResult(WriteOutcome.COMMITTED, count - len(rejected), rejected)

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def _write_lane(self, cut: CutId, lane: str, table: pa.Table) -> Iterator[RejectedRow]:
        """Post the rows of a lane; yield those that the receiver rejects, in order."""
        if self._owner is None or lane not in self._clients:
            raise ConfigError(f"webhook sink {self.name} is not open for lane {lane!r}; call open() before write()")
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame), "a table has columns"
        spec = self._settings.endpoints[lane]
        for batch in _batches(LaneRows(lane, (), frame).values(), spec):
            yield from self._deliver(cut, lane, batch, _Budget(spec.split_requests))

    def _deliver(self, cut: CutId, lane: str, batch: _Batch, budget: _Budget) -> Iterator[RejectedRow]:
        """Post a batch, in halves if a part of it may be accepted."""
        rejection = self._post(cut, lane, batch)
        if rejection is None:
            return
        if len(batch.rows) == 1 or budget.requests < 2:
            for row in range(batch.first, batch.first + len(batch.rows)):
                yield RejectedRow(lane, row, f"http_{rejection.status}", rejection.reason)
            return
        budget.requests -= 2
        half = len(batch.rows) // 2
        yield from self._deliver(cut, lane, _Batch(batch.first, batch.rows[:half]), budget)
        yield from self._deliver(cut, lane, _Batch(batch.first + half, batch.rows[half:]), budget)

    def _post(self, cut: CutId, lane: str, batch: _Batch) -> WebhookRejection | None:
        assert self._owner is not None, "opened with an owner"
        client, message_id = self._clients[lane], self._message_id(self._owner, cut, lane, batch)
        host = urlsplit(client.url).netloc
        return retry(
            partial(client.post, message_id, batch.body),
            f"request {message_id}",
            sink_dependency(f"Webhook {host}"),
            self._hooks,
            self._settings.patience,
        )

    def _message_id(self, owner: WriterId, cut: CutId, lane: str, batch: _Batch) -> str:
        """Return the id of a request, the same whenever its rows are sent."""
        return f"{owner.app}-{lane}-{owner.epoch}-{cut.batch}-{cut.digest}-{batch.first}-{len(batch.rows)}"


def _batches(rows: Sequence[bytes], spec: WebhookSpec) -> Iterator[_Batch]:
    """Yield the requests of a lane: full by rows or by bytes."""
    first, size = 0, 0
    for place, row in enumerate(rows):
        if place > first and (place - first >= spec.batch_rows or size + len(row) > spec.batch_bytes):
            yield _Batch(first, rows[first:place])
            first, size = place, 0
        size += len(row)
    if len(rows) > first:
        yield _Batch(first, rows[first:])
