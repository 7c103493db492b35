"""A consumer beside an app under faults: it sees what a downstream service sees.

It reads committed records only. At every poll it checks that no batch follows a later one in a partition. While the
app is dead, it counts the visible records of each cut. At the end it checks that it saw exactly the final records (none
that was aborted, none twice) and that no cut has grown since one of those counts: a cut is visible as a whole, over all
topics and partitions, or not at all.
"""

from __future__ import annotations

import threading
import time
from collections import Counter

from streamcore.kafka.readers import Follower, Record
from tests.harness.oracles.lane_reader import LANES, Outputs, batch_of

_LIMIT_S = 60
_QUIET_S = 1.0


class Watcher:
    """Use it as a context manager, and call ``check`` within it, after the app has ended."""

    def __init__(self, outputs: Outputs) -> None:
        self._outputs = outputs
        self._seen: list[Record] = []
        self._latest: dict[tuple[str, int], tuple[int, int]] = {}
        self._faults: list[str] = []
        self._counts: list[Counter[tuple[int, int]]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.polls = 0

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(_LIMIT_S)

    def _watch(self) -> None:
        topics = [self._outputs.topic(lane) for lane in LANES]
        with Follower(self._outputs.kafka, topics) as follower:
            while not self._stop.is_set():
                records = follower.poll(50)
                self.polls += bool(records)
                for record in records:
                    self._add(record)

    def _add(self, record: Record) -> None:
        place, batch = (record.topic, record.partition), batch_of(record)
        if batch < self._latest.get(place, batch):
            self._faults.append(f"{place}: batch {batch} came after {self._latest[place]}")
        self._latest[place] = batch
        self._seen.append(record)

    def count_while_dead(self) -> None:
        """Count the records of each cut while no process writes, after the last record has arrived."""
        before = -1
        while before != len(self._seen):
            before = len(self._seen)
            time.sleep(_QUIET_S)
        self._counts.append(Counter(map(batch_of, self._seen)))

    def check(self) -> None:
        """Check that the seen records equal the final ones."""
        final = [record for lane in LANES for record in self._outputs.read(lane)]
        end = time.monotonic() + _LIMIT_S
        while len(self._seen) < len(final) and time.monotonic() < end:
            time.sleep(0.1)
        assert self._thread.is_alive(), "the watcher died"
        assert self._faults == []
        assert _by_place(self._seen) == _by_place(final)
        whole = Counter(map(batch_of, final))
        for counts in self._counts:
            assert counts == {batch: whole[batch] for batch in counts}, "a cut was seen in part"


def _by_place(records: list[Record]) -> list[tuple[str, int, int, bytes | None, bytes | None]]:
    return sorted(
        ((r.topic, r.partition, r.offset, r.key, r.value) for r in records), key=lambda row: (row[0], row[1], row[2])
    )
