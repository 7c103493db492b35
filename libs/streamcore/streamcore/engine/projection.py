"""Which fields of a cut's events become columns: those that the kernel reads, as it says after each cut.

Flink and Spark call this projection push-down. The records are checked in all fields, so which of them are events does
not depend on the rules; the other fields cost no column, no shuffle and no memory. It changes no output: a cut runs
again with all fields if the driver has started anew, and gives the same.

A cut with control records has all fields too, unless all of them are data (``App.data_keys``): a rule that it publishes
may read any. An event that is late (lane ``late``) keeps all fields: a cut begins with the watermark at which the one
before ended, so stage 1 can tell.

Of a stream with ``deduplicate`` stage 1 decodes all fields, because it hashes them, and sends those that are read.
While a shard has forgotten ids of after the watermark, an event that is not behind it may be late: then all are sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamcore.app import App
from streamcore.kernel import DEDUPLICATION, FLOOR_AHEAD
from streamcore.schema import StreamSchema
from streamcore.watermark import WatermarkStrategy


@dataclass(frozen=True, slots=True)
class Projection:
    """The fields of the events of a cut that stage 1 keeps, by stream. ``watermark_ms``: at the beginning of the cut;
    events before it keep all fields."""

    fields: Mapping[str, frozenset[str]]
    watermark_ms: int

    @classmethod
    def of_next_cut(
        cls,
        app: App,
        read: Iterable[Mapping[str, Iterable[str]] | None],
        watermark_ms: int,
        counters: Mapping[str, int],
    ) -> Projection | None:
        """Return that of the cut after one that ends at this watermark; None if it has all fields.

        ``read``: by the kernel of each shard of the last stage (``KernelOutput.fields``). They may differ: a rule is in
        quarantine on the shard on which it failed before it is on all. A stage in front of the last one reads all, but
        for one that gets hashes. ``counters``: of the cut (``KernelOutput.counters``).
        """
        if len(app.stages) > 1 + sends_ids(app) or any(counters[name] for name in counters if _is_floor(name)):
            return None
        found: dict[str, frozenset[str]] = {}
        for fields in read:
            if fields is None:
                return None
            for stream, names in fields.items():
                found[stream] = found.get(stream, frozenset()).union(names)
        return cls(found, watermark_ms)

    def project(self, schema: StreamSchema, strategy: WatermarkStrategy) -> frozenset[str] | None:
        """Return the fields of a stream that become columns, with those of its watermark; None for all."""
        if schema.name not in self.fields:
            return None
        needed = {schema.event_time, strategy.punctuation, strategy.end}
        return self.fields[schema.name] | {name for name in needed if name}


def sends_ids(app: App) -> bool:
    """Return whether the first keyed stage gets hashes of events, and the next one the events themselves."""
    return app.event_filter is not None


def hashes_all(app: App, source: int) -> bool:
    """Return whether stage 1 hashes all fields of the events of a source."""
    return sends_ids(app) and app.schemas[source].deduplicate_ms is not None


def _is_floor(name: str) -> bool:
    return name.startswith(f"{DEDUPLICATION}.") and name.endswith(f".{FLOOR_AHEAD}")
