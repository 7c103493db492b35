"""The output of an app, read by an independent consumer, and invariants of every output."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from streamcore.kafka.data_clients import Isolation
from streamcore.kafka.readers import Record, read_topic
from streamcore.kafka.settings import KafkaSettings
from tests.harness.oracles.rule_alerts import Alert

LANES = ("alerts", "shadow", "decisions", "status", "late", "deadletters")
_READ_MS = 120_000
_EMPTY_RUN = 50
"""The number of batches without output after which there is a marker."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """The output topics of one app."""

    kafka: KafkaSettings
    app: str

    def topic(self, lane: str) -> str:
        """Return the topic of a lane."""
        return f"{self.app}.{lane}"

    def read(self, lane: str, isolation: Isolation = Isolation.COMMITTED) -> list[Record]:
        """Return all records of a lane, by partition and offset."""
        return read_topic(self.kafka, self.topic(lane), isolation=isolation, limit_ms=_READ_MS)

    def alerts(self) -> list[Alert]:
        """Return all alerts."""
        return [as_object(record) for record in self.read("alerts")]

    def markers(self) -> list[int]:
        """Return the batches that have a marker. A marker is ``batch digest``."""
        markers = read_topic(self.kafka, self.topic("markers"), limit_ms=_READ_MS)
        return sorted(int((r.value or b"").split()[0]) for r in markers)


def as_object(record: Record) -> Alert:
    """Return the value of a record, which is a JSON object."""
    value = json.loads(record.value or b"null")
    assert isinstance(value, dict)
    return value


def text(record: Record, header: str) -> str:
    """Return the value of a header as text, empty if it is missing."""
    return (record.header(header) or b"").decode()


def batch_of(record: Record) -> tuple[int, int]:
    """Return (epoch, batch) of an output record."""
    return int(text(record, "epoch")), int(text(record, "batch"))


def check_transactions(outputs: Outputs) -> None:
    """Check that every cut became visible by one transaction, once.

    A commit leaves a control record behind the records that it wrote to a partition. So the records of one cut in a
    partition are one run without a gap in the offsets, and there is a gap between the runs of two cuts. And every cut
    that wrote anything has exactly one marker, which shares its transaction; a cut that wrote nothing has one only when
    it ends a run of such cuts.
    """
    records = [record for lane in LANES for record in outputs.read(lane)]
    for place, run in itertools.groupby(records, key=lambda r: (r.topic, r.partition)):
        check_runs(place, list(run))
    written = {batch_of(record)[1] for record in records}
    markers = outputs.markers()
    assert len(markers) == len(set(markers)), "one marker for a batch"
    assert written <= set(markers), "a marker for each batch that wrote"
    for before, marker in itertools.pairwise([-1, *markers]):
        assert marker in written or marker - before >= _EMPTY_RUN, f"batch {marker} wrote nothing and has a marker"


def check_runs(place: tuple[str, int], records: Sequence[Record]) -> None:
    """Check ``check_transactions`` in one partition, and that batches never decrease."""
    for before, after in itertools.pairwise(records):
        step = after.offset - before.offset
        assert batch_of(before) <= batch_of(after), f"{place}: batch {batch_of(after)} after {batch_of(before)}"
        if batch_of(before) == batch_of(after):
            assert step == 1, f"{place}: batch {batch_of(after)} was committed in parts, at offset {after.offset}"
        else:
            assert step > 1, f"{place}: two batches in one transaction at offset {after.offset}"


def repeated_alerts(alerts: Iterable[Alert]) -> list[str]:
    """Return the ids of alerts that occur more than once."""
    return [str(name) for name, count in Counter(a["alert_id"] for a in alerts).items() if count > 1]
