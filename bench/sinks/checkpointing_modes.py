"""Measures how soon a ``read_committed`` reader has the records of a cut, in both checkpointing modes, in turns.

    python -m bench.sinks.checkpointing_modes --bootstrap HOST:PORT [--cuts 300] [--records 100]

A writer of each mode commits cuts of small records to a topic of its own; a consumer follows both topics. Shown are, in
milliseconds, the time from the call of ``commit`` to the last record of the cut at the reader, and to the return of the
call, and the CPU-seconds of the writer's process, reader included.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
import uuid

import confluent_kafka as ck

from bench.harness.result import show
from streamcore.cuts.cut_id import CutId
from streamcore.cuts.writer_id import WriterId
from streamcore.kafka import data_clients as clients
from streamcore.kafka.at_least_once import AtLeastOnceWriter
from streamcore.kafka.data_clients import Isolation
from streamcore.kafka.delivery import CheckpointingMode, OutRecords
from streamcore.kafka.exactly_once import ExactlyOnceWriter
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, delete_topics, ensure_topics

_WRITERS = {CheckpointingMode.EXACTLY_ONCE: ExactlyOnceWriter, CheckpointingMode.AT_LEAST_ONCE: AtLeastOnceWriter}
_PAUSE_S = 0.02
_WARM_UP = 20


class _Side:
    """A writer, and a thread that notes when the last record of each cut is read."""

    def __init__(self, settings: KafkaSettings, mode: CheckpointingMode, records: int) -> None:
        self.app = f"modes-{uuid.uuid4().hex[:8]}"
        self.out, self.markers = f"{self.app}.out", f"{self.app}.markers"
        self.settings, self.records = settings, records
        ensure_topics(settings, [TopicSpec(self.out, 1), TopicSpec(self.markers, 1, compacted=True)])
        self.writer = _WRITERS[mode](settings, WriterId(self.app, 1), self.markers)
        self.writer.open()
        self.seen: dict[int, float] = {}
        self.count = 0
        self.visible_ms: list[float] = []
        self.commit_ms: list[float] = []
        self.cpu_s = 0.0
        self.ends = False
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()

    def _follow(self) -> None:
        client = clients.consumer(self.settings, Isolation.COMMITTED, report_ends=False, end_wait_ms=500)
        client.assign([ck.TopicPartition(self.out, 0, 0)])
        while not self.ends:
            for message in client.consume(self.records, 0.1):
                assert message.error() is None, message.error()
                self.count += 1
                if self.count % self.records == 0:
                    self.seen[self.count // self.records - 1] = time.perf_counter()
        client.close()

    def cut(self, number: int) -> None:
        """Commit a cut, and wait until it is read."""
        values = [b"%d" % n for n in range(self.records)]
        cpu, begun = time.process_time(), time.perf_counter()
        self.writer.commit(CutId(number, f"{number:x}"), [OutRecords(self.out, [None] * self.records, values)])
        committed = time.perf_counter()
        while number not in self.seen:
            time.sleep(0.0002)
        self.cpu_s += time.process_time() - cpu
        self.visible_ms.append(1000 * (self.seen[number] - begun))
        self.commit_ms.append(1000 * (committed - begun))

    def close(self) -> None:
        """Check that every record was read once, and remove the topics."""
        self.ends = True
        self.thread.join()
        self.writer.close()
        delete_topics(self.settings, [self.out, self.markers])


def main() -> None:
    """Run both modes in turns."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--cuts", type=int, default=300)
    parser.add_argument("--records", type=int, default=100)
    arguments = parser.parse_args()
    settings = KafkaSettings(arguments.bootstrap)
    sides = {mode: _Side(settings, mode, arguments.records) for mode in CheckpointingMode}
    for number in range(_WARM_UP + arguments.cuts):
        for side in sides.values():
            side.cut(number)
            time.sleep(_PAUSE_S)
    for mode, side in sides.items():
        side.close()
        assert side.count == (_WARM_UP + arguments.cuts) * arguments.records, "each record once"
        visible, commit = side.visible_ms[_WARM_UP:], side.commit_ms[_WARM_UP:]
        show(
            {
                "workload": "checkpointing-modes",
                "mode": mode.value,
                "visible_ms": round(statistics.median(visible), 2),
                "visible_ms_p95": round(statistics.quantiles(visible, n=20)[-1], 2),
                "commit_ms": round(statistics.median(commit), 2),
                "cpu_s": round(side.cpu_s, 2),
            }
        )


if __name__ == "__main__":
    main()
