"""A running app: owner of the checkpoint, one query, one transaction a cut, an exact stop.

``Runner.run`` blocks until the app was asked to drain or cannot go on. The steps of a cut, in the callback that Spark
calls once a batch (each step names the state that a crash after it leaves):

1. Refuse the batch if a drain was requested, or if the lease is no longer ours; take the savepoints that were asked
   for, of the batch before (``streamcore.spark.batch_boundary``). Then decide its input, unless that was decided
   before, look once more whose the lease is, and write it down (``streamcore.engine.planner``). Nothing of the batch
   has run; the next start runs it.
2. Run the batch: stages 1 and 2 once, their packed output here. State is written under the batch's number but not
   yet part of the query; a replay starts from the state before it.
3. Write the output of all shards: rows to the sinks, then records and the marker in one transaction
   (``streamcore.engine.output``). A crash after it makes Spark run the batch again; ledgers and marker make step 3
   skip it.
4. Report, and return: Spark writes ``commits/N``.
"""

from __future__ import annotations

import gc
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

import pandas  # noqa: F401 - pyspark asks for it when a query is built; loaded here, while the JVM starts
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamcore.app import App
from streamcore.checkpoint.checkpoint import AppIdentity, CheckpointRoot
from streamcore.checkpoint.epoch import read_epoch
from streamcore.checkpoint.offset_log import CutBounds
from streamcore.checkpoint.origin import RestoreOrigin
from streamcore.engine.lag import Lag, LagTracker
from streamcore.engine.output import OutputCommitter
from streamcore.engine.planner import Planner
from streamcore.engine.report import CutReport, Listeners
from streamcore.errors import ConfigError, CorruptState, Drained, Permanent, Retryable, StreamError
from streamcore.kafka.delivery import DeliverySettings, OutRecord, WriterHooks, record_bytes
from streamcore.kafka.exactly_once import ExactlyOnceWriter
from streamcore.kafka.markers import read_marker
from streamcore.kafka.partition_offsets import KafkaPartitionOffsets
from streamcore.kafka.rewind_guard import check_not_behind_output
from streamcore.kafka.settings import KafkaSettings
from streamcore.offsets import StreamOffsets, to_topic_partition
from streamcore.savepoint.repository import Savepoint, SavepointRepository
from streamcore.sinks.sink import SinkFactory, SinkHooks
from streamcore.spark.batch_boundary import BatchBoundary
from streamcore.spark.collect import collect_shards
from streamcore.spark.query import build_query
from streamcore.spark.runtime import Runtime
from streamcore.spark.savepoint_writer import SavepointTarget, take_savepoint
from streamcore.spark.session import SparkSettings
from streamcore.spark.warmup import warm_up
from streamcore.spark.wire import ASSIGNMENTS_PROPERTY, encode_assignments
from streamcore.storage import open_object_store
from streamcore.storage.atomic_files import list_names, remove_folder
from streamcore.storage.location import Location, for_spark
from streamcore.writer_id import WriterId

_POLL_S = 0.2
#: While a cut waits for input: so old may be what is known of the lease.
_LEASE_S = 1.0


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """When a cut fails for a reason that may pass, the query starts again: so often in a row, with growing pauses."""

    attempts: int = 8
    pause_ms: int = 1_000
    pause_max_ms: int = 15_000


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How an app runs. ``trigger_ms``: the least time between the starts of two cuts; 0 starts the next at once.

    ``savepoints``: the place of the savepoints of all apps, without which none is taken.
    """

    kafka: KafkaSettings
    checkpoint: Location
    spark: SparkSettings
    markers_topic: str
    trigger_ms: int = 0
    starting_offsets: str = "earliest"
    delivery: DeliverySettings = field(default_factory=DeliverySettings)
    sinks: tuple[SinkFactory, ...] = ()
    restarts: RestartPolicy = field(default_factory=RestartPolicy)
    savepoints: str = ""


class Runner:
    """Runs one app. ``drain`` and ``savepoint`` may be called from any thread, ``drain`` from signal handlers too, as
    often as one likes.

    ``start``: entered already; who made it leaves it.
    """

    def __init__(self, app: App, settings: RunSettings, start: Runtime, listeners: Listeners | None = None) -> None:
        self.app = app
        self.settings = settings
        self.runtime = start
        self.listeners = listeners or Listeners()
        self.root = CheckpointRoot(settings.checkpoint)
        self._boundary = BatchBoundary(f"app {app.name}")
        self._failure: BaseException | None = None
        self._last_progress = self._last = -1
        self._committed = 0
        self._meter: LagTracker | None = None

    def drain(self, *, finish_open_batch: bool = False) -> None:
        """Ask for a stop at the next batch boundary. ``settle``: a batch that an earlier process began runs first, so
        that no batch is left half written."""
        self._boundary.drain(finish_open_batch=finish_open_batch)

    def savepoint(self, name: str) -> Future[Savepoint]:
        """Ask for a savepoint at the next batch boundary; the app goes on when it is written.

        The future has the result or error of ``savepoints.take``, and ``Retryable`` when the app ended before.
        """
        return self._boundary.savepoint(partial(self._take, name))

    @property
    def has_ended(self) -> bool:
        """Whether ``run`` has returned; then nothing that is asked is done."""
        return self._boundary.is_closed

    def _take(self, name: str, batch: int) -> Savepoint:
        if not self.settings.savepoints:
            raise ConfigError(f"app {self.app.name}: it has no place for savepoints")
        self.runtime.lease.check()
        place = SavepointRepository(open_object_store(self.settings.savepoints), self.app.name)
        epoch = read_epoch(self.root.epoch_path)
        return take_savepoint(self.runtime.session(), self.app, self.root, SavepointTarget(place, name, batch, epoch))

    def warm_up(self, scratch: Location, enough: Callable[[], bool]) -> None:
        """Warm Spark up before the checkpoint is acquired, so that the first cut is quick; see ``warmup``."""
        kafka, tasks = self.settings.kafka, self.settings.spark.parallelism
        warm_up(self.runtime.session(), self.app, kafka, tasks, scratch, enough)

    def run(self) -> None:
        """Run until drained. Raises ``StreamError`` when the app cannot go on."""
        epoch = self.root.initialise(AppIdentity(self.app.name, self.app.shards), epoch=self.runtime.epoch)
        if self.root.last_committed() is not None:  # it is in Spark's own state by now
            remove_folder(self.root.initial)
        session = self.runtime.session()
        # What is loaded stays: a collection then looks at what cuts made, which is a third of what output costs here.
        gc.freeze()
        try:
            self._run_with_restarts(session, epoch)
        finally:
            self._boundary.close()

    def _run_with_restarts(self, session: SparkSession, epoch: int) -> None:
        """One query after the other until drained; cuts that were committed between two failures reset the count."""
        failures, pause_ms, last = 0, self.settings.restarts.pause_ms, -1
        while not self._boundary.draining:
            try:
                self._run_query(session, epoch)
                return
            except Retryable as error:
                if self._committed > last:
                    failures, pause_ms, last = 0, self.settings.restarts.pause_ms, self._committed
                failures += 1
                self.listeners.failure(error)
                if failures > self.settings.restarts.attempts:
                    raise Permanent(
                        f"app {self.app.name}: gave up after {failures} failures in a row: {error}"
                    ) from error
            self._boundary.wait(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, self.settings.restarts.pause_max_ms)

    def _run_query(self, session: SparkSession, epoch: int) -> None:
        lease = self.runtime.lease
        hooks = WriterHooks(still_owner=lease.check, replace_oversized=_truncate)
        writer_id = WriterId(self.app.name, epoch, "driver")
        delivery = self.settings.delivery
        with ExactlyOnceWriter(
            self.settings.kafka, writer_id, self.settings.markers_topic, delivery=delivery, hooks=hooks
        ) as writer:
            sink_hooks = SinkHooks(still_owner=lease.check)
            outputs = OutputCommitter(self.app, writer, [make(sink_hooks) for make in self.settings.sinks])
            written = (writer.open(), outputs.open(writer_id))
            try:
                self.root.verify()
                self.root.check_not_behind(max((batch for batch in written if batch is not None), default=-1), epoch)
                self._refuse_rewind(epoch)
                self._failure = None
                query = self._start(session, _Cuts(self, self._planner(), session, outputs, epoch))
                try:
                    self._poll_progress(query)
                finally:
                    query.stop()
            finally:
                outputs.close()
        self._raise_failure(query)

    def _refuse_rewind(self, epoch: int) -> None:
        """Before the first batch after a restore, and only then."""
        origin = RestoreOrigin.read(self.root.restored_from_path)
        if origin is None or self.root.last_committed() is not None:
            return

        def last_batch(earlier: int) -> int | None:
            writer, settings = WriterId(self.app.name, earlier, "driver"), self.settings
            marker = read_marker(settings.kafka, settings.markers_topic, writer, settings.delivery.recovery_ms)
            return None if marker is None else marker.batch

        check_not_behind_output(origin, epoch, last_batch)

    def lag(self) -> Lag:
        """How far the app is behind its inputs; from any thread."""
        return Lag() if self._meter is None else self._meter.current()

    def _planner(self) -> Planner:
        ends = KafkaPartitionOffsets(self.settings.kafka, [self.app.control_topic, *self.app.topics])
        self._meter = LagTracker(ends, self.app.topics)
        return Planner(self.app, self.root.offsets, self._meter, self.settings.starting_offsets == "latest")

    def _start(self, session: SparkSession, cuts: _Cuts) -> StreamingQuery:
        settings = self.settings
        given = self.root.last_committed() is None and list_names(self.root.initial)
        initial = open_object_store(self.root.initial) if given else None
        frame = build_query(session, self.app, settings.kafka, settings.spark.parallelism, initial)
        stream = frame.writeStream.foreachBatch(cuts.run).outputMode("append")
        stream = stream.option("checkpointLocation", for_spark(self.root.spark)).queryName(self.app.name)
        return stream.trigger(processingTime=f"{settings.trigger_ms} milliseconds").start()

    def _poll_progress(self, query: StreamingQuery) -> None:
        """Pass Spark's metrics on. Reading them costs the JVM time, so that is done after a cut only."""
        while query.isActive:
            time.sleep(_POLL_S)
            if self._last_progress < self._last:
                self._forward_progress(query)

    def _forward_progress(self, query: StreamingQuery) -> None:
        """Pass on Spark's metrics of the batches since the last call.

        Each is a large text in the JVM: mostly there is one, and a batch that was passed on is not read again.
        """
        last = query.lastProgress
        if last is None or last["batchId"] <= self._last_progress:
            return
        for progress in [last] if last["batchId"] == self._last_progress + 1 else query.recentProgress:
            if progress["batchId"] > self._last_progress:
                self._last_progress = progress["batchId"]
                self.listeners.progress(progress)

    def _raise_failure(self, query: StreamingQuery) -> None:
        """Raise the error that ended the query: our own exception if there is one, else Spark's."""
        if isinstance(self._failure, Drained):
            return
        if isinstance(self._failure, StreamError):
            raise self._failure
        error = query.exception()
        if self._failure is not None or error is not None:
            raise _from_spark(error, self._failure)

    def cut_done(self, report: CutReport, end: StreamOffsets) -> None:
        """Report a cut that is done, up to ``end``."""
        self._committed += 1
        if self._meter is not None:
            self._meter.record_commit(end)
        self._last = report.batch
        self.listeners.report(report)

    def plan_cut(self, planner: Planner, batch: int) -> CutBounds:
        """Run step 1 of the module's docstring. ``Drained`` once a drain was asked for, ``Fenced`` when another process
        owns the checkpoint; nothing is decided then."""
        lease, begun = self.runtime.lease, self.root.offsets.read(batch) is not None

        def meanwhile() -> None:
            lease.check(max_age_s=_LEASE_S)
            self._boundary.on_boundary(batch, begun=begun)

        lease.check()
        self._boundary.on_boundary(batch, begun=begun)
        return planner.plan_cut(batch, meanwhile, lease.check)

    def record_failure(self, error: BaseException) -> None:
        """Keep the error of a cut: Spark passes on its text only."""
        self._failure = error


@dataclass(frozen=True, slots=True)
class _Cuts:
    """The callback of one query."""

    runner: Runner
    planner: Planner
    session: SparkSession
    outputs: OutputCommitter
    epoch: int

    def run(self, frame: DataFrame, batch: int) -> None:
        """Run steps 1 to 4 of the module's docstring."""
        try:
            self._run(frame, batch)
        except BaseException as error:
            self.runner.record_failure(error)
            raise

    def _run(self, frame: DataFrame, batch: int) -> None:
        # 1. Not a row of the batch has been read yet.
        cut = self.runner.plan_cut(self.planner, batch)
        assignments = self.planner.assign(cut, self.runner.settings.spark.parallelism)
        self.session.sparkContext.setLocalProperty(ASSIGNMENTS_PROPERTY, encode_assignments(assignments))
        # 2. The only action on the frame: a second one would run the whole plan again.
        started = time.perf_counter()
        rows = collect_shards(frame)
        ran = time.perf_counter()
        # 3. All lanes of all shards, in the order of the shards.
        committed = self.outputs.commit(batch, [row.records for row in rows if row.produced])
        # 4. Spark writes commits/<batch> when this returns.
        done = time.perf_counter()
        self.runner.cut_done(
            CutReport(
                batch=batch,
                epoch=self.epoch,
                outcome=committed.receipt.outcome,
                events=max((r.events for r in rows), default=0),
                lanes=committed.lanes,
                reasons=committed.reasons,
                offsets=cut.end.by_topic(),
                clock_ms=cut.end.clock_ms,
                watermark_ms=max((r.watermark_ms for r in rows), default=0),
                watermarks=_by_topic(self.runner.app, [row.partitions for row in rows]),
                run_ms=round((ran - started) * 1000),
                commit_ms=round((done - ran) * 1000),
                state_bytes=sum(r.state_bytes for r in rows),
                shards_loaded=sum(r.shards_loaded for r in rows),
                counters=_total(row.counters for row in rows),
                oversized=committed.receipt.oversized,
                sinks=committed.sinks,
            ),
            cut.end,
        )


def _by_topic(app: App, texts: Iterable[str]) -> dict[str, dict[str, int]]:
    """Watermarks of source partitions, as ``CutReport`` has them."""
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for number, watermark_ms in (pair for text in texts for pair in json.loads(text)):
        topic, partition = to_topic_partition(number, app.topics)
        found[topic][str(partition)] = watermark_ms
    return dict(found)


def _total(texts: Iterable[str]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for text in texts:
        total.update(json.loads(text))
    return dict(total)


def _truncate(record: OutRecord, limit_bytes: int) -> OutRecord:
    """Return a record that no topic takes, cut to fit: its beginning, with headers that give its full length."""
    value = record.value or b""
    marks = (("truncated_from_bytes", str(len(value)).encode()),)
    short = OutRecord(record.topic, (record.key or b"")[:1024] or None, None, record.headers + marks)
    room = max(0, limit_bytes - record_bytes(short))
    return OutRecord(short.topic, short.key, value[:room], short.headers)


def _from_spark(error: StreamingQueryException | None, cause: BaseException | None) -> StreamError:
    """Spark reports a lost worker, a broker that is away and a broken program alike: all are tried again, in limits."""
    text = str(cause if cause is not None else error)
    if isinstance(cause, StreamError):
        return cause
    if any(f"streamcore.errors.{kind.__name__}" in text for kind in (ConfigError, CorruptState, Permanent)):
        return Permanent(text)
    return Retryable(text)
