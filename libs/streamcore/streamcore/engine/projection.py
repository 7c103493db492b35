"""Which fields of a cut's events become columns, and by which keys events are sent to shards: those that the kernel
reads, as it says after each cut.

Flink and Spark call this projection push-down. The records are checked in all fields, so which of them are events does
not depend on the rules; the other fields cost no column, no shuffle and no memory. An event goes to a shard once for
each key that is read, and not for each that the app has. It changes no output: a cut runs again with all fields and
keys if the driver has started anew, and gives the same.

A cut with control records has all fields and keys too, unless all of them are data (``App.data_keys``): a rule that it
publishes may read any. An event that is late (lane ``late``) keeps all fields, and its first key: a cut begins with the
watermark at which the one before ended, so stage 1 can tell.

Of a stream with ``deduplicate`` stage 1 decodes all fields, because it hashes them, and sends those that are read.
While a shard has forgotten ids of after the watermark, an event that is not behind it may be late: then all are sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamcore.app import App
from streamcore.kernel import DEDUPLICATION, FLOOR_AHEAD, StreamKey, StreamReads
from streamcore.schema import StreamSchema
from streamcore.watermark import WatermarkStrategy


@dataclass(frozen=True, slots=True)
class Projection:
    """What is read of the events of a cut, by stream. ``watermark_ms``: at the beginning of the cut;
    events before it keep all fields."""

    reads: Mapping[str, StreamReads]
    watermark_ms: int

    @classmethod
    def of_next_cut(
        cls,
        app: App,
        reads: Iterable[Mapping[str, StreamReads] | None],
        watermark_ms: int,
        counters: Mapping[str, int],
    ) -> Projection | None:
        """Return that of the cut after one that ends at this watermark; None if all is read.

        ``reads``: by the kernel of each shard of the last stage (``KernelOutput.reads``). They may differ: a rule is in
        quarantine on the shard on which it failed before it is on all. A stage in front of the last one reads all, but
        for one that gets hashes, and with ``App.reads_of_all_stages``. ``counters``: of the cut
        (``KernelOutput.counters``).
        """
        is_known = app.reads_of_all_stages or len(app.stages) <= 1 + sends_ids(app)
        if not is_known or any(counters[name] for name in counters if _is_floor(name)):
            return None
        found: dict[str, StreamReads] = {}
        for of_shard in reads:
            if of_shard is None:
                return None
            for stream, one in of_shard.items():
                before = found.get(stream, one)
                found[stream] = StreamReads(before.fields | one.fields, before.routes | one.routes)
        return cls(found, watermark_ms)

    def project(self, schema: StreamSchema, strategy: WatermarkStrategy) -> frozenset[str] | None:
        """Return the fields of a stream that become columns, with those of its watermark; None for all."""
        if schema.name not in self.reads:
            return None
        needed = {schema.event_time, strategy.punctuation, strategy.end}
        return self.reads[schema.name].fields | {name for name in needed if name}

    def sends(self, rows: StreamKey) -> bool:
        """Return whether an exchange gets the events that are not late. Those of other kinds of rows always do."""
        reads = self.reads.get(rows.stream)
        return reads is None or rows.route < 0 or rows.route in reads.routes


def encode_reads(reads: Mapping[str, StreamReads] | None) -> str:
    """Encode ``KernelOutput.reads`` as JSON."""
    rows = None if reads is None else {name: [sorted(one.fields), sorted(one.routes)] for name, one in reads.items()}
    return json.dumps(rows)


def decode_reads(text: str) -> Mapping[str, StreamReads] | None:
    """Decode what ``encode_reads`` has encoded."""
    rows = json.loads(text)
    return rows and {name: StreamReads(frozenset(fields), frozenset(routes)) for name, (fields, routes) in rows.items()}


def sends_ids(app: App) -> bool:
    """Return whether the first keyed stage gets hashes of events, and the next one the events themselves."""
    return app.event_filter is not None


def hashes_all(app: App, source: int) -> bool:
    """Return whether stage 1 hashes all fields of the events of a source."""
    return sends_ids(app) and app.schemas[source].deduplicate_ms is not None


def _is_floor(name: str) -> bool:
    return name.startswith(f"{DEDUPLICATION}.") and name.endswith(f".{FLOOR_AHEAD}")
