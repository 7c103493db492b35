"""Runs an app on Spark: one streaming query, whose callback runs each cut and commits its output in one transaction.

``Runner.run`` blocks until the app has drained or has failed for good. Spark calls the callback once per batch. Its
steps, each with the state that a crash after it leaves:

1. Reject the batch if a drain was requested or the lease was lost. Take the requested savepoints, of the state after
   the previous batch (``streamcore.spark.batch_boundary``). Unless the offset log already has the batch, plan its
   input, check the lease again and write the plan to the offset log (``streamcore.engine.planner``). Nothing of the
   batch has run; the next start runs it.
2. Run stage 1 and the keyed stages, and collect their output on the driver. The state is written under the batch's
   number, but Spark has not committed the batch; a replay starts from the state before it.
   If the batch has accepted streams that were published, write them to the checkpoint, for the batches after it.
3. Write the output of all shards: rows to the sinks, then records and the marker in one Kafka transaction; with
   ``at-least-once`` the records first, and then the marker (``streamcore.engine.output``). After a crash Spark runs the
   batch again; ledgers and marker make step 3 skip it, unless records without a transaction have no marker yet.
4. Report the cut and return. Spark then writes ``commits/N``. If it has accepted streams, the next batch is rejected
   and the query starts anew with the app that has them, in the same session; so does any later start.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamcore.app import App
from streamcore.checkpoint.checkpoint import AppIdentity, CheckpointRoot
from streamcore.checkpoint.epoch import read_epoch
from streamcore.checkpoint.offset_log import CutBounds
from streamcore.checkpoint.origin import RestoreOrigin
from streamcore.cuts.cut_clock import MAX_CLOCK_AHEAD_MS, reject_clock_ahead, wall_clock_ms
from streamcore.cuts.cut_id import CutId
from streamcore.cuts.writer_id import WriterId
from streamcore.engine.cut_watch import CutWatch
from streamcore.engine.inputs import kafka_topics, open_bounds, with_files
from streamcore.engine.lag import Lag, LagTracker
from streamcore.engine.latency import lane_latencies, take_first_records
from streamcore.engine.output import OutputCommitter
from streamcore.engine.planner import Planner, control_ranges
from streamcore.engine.projection import Projection, decode_reads
from streamcore.engine.report import CutReport, Listeners
from streamcore.errors import ConfigError, CorruptState, Drained, Fenced, Permanent, Retryable, StreamError
from streamcore.kafka.at_least_once import AtLeastOnceWriter
from streamcore.kafka.broker_watch import BrokerWatch
from streamcore.kafka.control_keys import ControlKeyReader
from streamcore.kafka.delivery import CheckpointingMode, DeliverySettings, OutRecord, WriterHooks, record_bytes
from streamcore.kafka.exactly_once import MARKER_EVERY, ExactlyOnceWriter
from streamcore.kafka.markers import read_marker
from streamcore.kafka.partition_offsets import KafkaPartitionOffsets
from streamcore.kafka.rewind_guard import check_not_behind_output
from streamcore.kafka.settings import KafkaSettings
from streamcore.offsets import StreamOffsets, to_topic_partition
from streamcore.savepoint.repository import Savepoint, SavepointRepository
from streamcore.schema.published_document import PublishedDocument, digest_documents, merge_documents
from streamcore.schema_registry.lookups import SchemaLookups
from streamcore.schema_registry.settings import RegistrySettings
from streamcore.schema_registry.store import SchemaStore
from streamcore.schema_registry.waiting import SchemaPins
from streamcore.sinks.sink import SinkFactory, SinkHooks
from streamcore.spark.batch_boundary import BatchBoundary
from streamcore.spark.collect import ShardRow, collect_shards
from streamcore.spark.failures import TaskFailed, explain_failure, explain_jvm_end, name_savepoint
from streamcore.spark.query import build_query, count_retained
from streamcore.spark.runtime import Runtime
from streamcore.spark.savepoint_writer import SavepointTarget, take_savepoint
from streamcore.spark.session import SparkSettings
from streamcore.spark.warmup import warm_up
from streamcore.spark.wire import ASSIGNMENTS_PROPERTY, BATCH_PROPERTY, encode_assignments
from streamcore.state.cut_files import sweep_stages
from streamcore.storage import open_object_store
from streamcore.storage.atomic_files import list_names, remove_folder
from streamcore.storage.location import Location, for_spark

_LOG = logging.getLogger(__name__)
_POLL_S = 0.2
#: How old the last check of the lease may be while a cut waits for input, in seconds.
_LEASE_CHECK_AGE_S = 1.0


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """When the query restarts after a ``Retryable`` failure."""

    #: Most restarts in a row.
    attempts: int = 8
    #: Milliseconds before the first restart; the pause doubles with each further one.
    pause_ms: int = 1_000
    #: Most milliseconds of a pause.
    pause_max_ms: int = 15_000


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How an app runs."""

    #: How to reach Kafka.
    kafka: KafkaSettings
    #: Folder of the checkpoint.
    checkpoint: Location
    #: Settings of the Spark session.
    spark: SparkSettings
    #: Topic of the app's markers.
    markers_topic: str
    #: Least milliseconds between the starts of two cuts; with 0 a cut starts when the previous one ends.
    trigger_ms: int = 0
    #: Where a new app begins in a topic: ``earliest``, ``latest``, an offset, or a time with its zone.
    starting_offsets: str = "earliest"
    #: Where the topics end: as ``starting_offsets``, at the first start. The app stops there. None: they have no end.
    ending_offsets: str | None = None
    #: Most milliseconds by which the clock of the last cut may be ahead of the machine's clock at the start. With more
    #: the start is rejected, because one of both clocks is wrong.
    max_clock_ahead_ms: int = MAX_CLOCK_AHEAD_MS
    #: Limits of the writes of output.
    delivery: DeliverySettings = field(default_factory=DeliverySettings)
    #: Exactly once: the records of a cut are one transaction. At least once: they are in none.
    mode: CheckpointingMode = CheckpointingMode.EXACTLY_ONCE
    #: Factories of the app's sinks.
    sinks: tuple[SinkFactory, ...] = ()
    #: When the query restarts after a failure.
    restarts: RestartPolicy = field(default_factory=RestartPolicy)
    #: URL of the folder with the savepoints of all apps; without it no savepoint can be taken.
    savepoints: str = ""
    #: How to reach the schema registry; needed if a stream's format is ``Registry``.
    registry: RegistrySettings | None = None


class _StreamsPublished(StreamError):
    """Raised in the query's callback to reject a batch, because the app has other streams from it on."""


class Runner:
    """Runs one app. ``drain`` and ``savepoint`` may be called from any thread and repeatedly, ``drain`` from signal
    handlers too.

    ``runtime`` must be entered; the caller exits it.
    """

    def __init__(self, app: App, settings: RunSettings, runtime: Runtime, listeners: Listeners | None = None) -> None:
        self._app_of_settings = app
        self.settings = settings
        self.runtime = runtime
        self.listeners = listeners or Listeners()
        self.root = CheckpointRoot(settings.checkpoint)
        self.app = app.with_streams(self.root.streams.in_force(self.root.next_batch))
        self._published = False
        self._boundary = BatchBoundary(f"app {app.name}")
        self._failure: BaseException | None = None
        self._lookups: SchemaLookups | None = None
        self._last_progress = self._last_batch = -1
        self._cuts_committed = 0
        self._lag_tracker: LagTracker | None = None
        self.watch = CutWatch()
        self._schemas: SchemaStore | None = None
        self._projection: Projection | None = None
        self._control_keys = ControlKeyReader(settings.kafka)
        if topics := app.registry_topics:
            if settings.registry is None:
                raise ConfigError(f"app {app.name}: topic {topics[0]} needs a schema registry; set schema_registry")
            self._schemas = SchemaStore.of(open_object_store(self.root.schemas), settings.registry.url)

    def drain(self, *, finish_open_batch: bool = False) -> None:
        """Stop at the next batch boundary. With ``finish_open_batch``, a batch that an earlier process began runs
        first, so that no batch stays half written."""
        self._boundary.drain(finish_open_batch=finish_open_batch)

    def savepoint(self, name: str) -> Future[Savepoint]:
        """Request a savepoint at the next batch boundary. The app continues once the savepoint is written.

        The future gets the result or error of ``take_savepoint``, or ``Retryable`` if the app ends before.
        """
        return self._boundary.savepoint(partial(self._take_savepoint, name))

    @property
    def has_ended(self) -> bool:
        """Whether ``run`` has returned. Requests then fail."""
        return self._boundary.is_closed

    def _take_savepoint(self, name: str, batch: int) -> Savepoint:
        """Take a savepoint of the state after ``batch``."""
        if not self.settings.savepoints:
            raise ConfigError(f"app {self.app.name}: it has no folder for savepoints")
        self.runtime.lease.check()
        repository = SavepointRepository(open_object_store(self.settings.savepoints), self.app.name)
        target = SavepointTarget(repository, name, batch, read_epoch(self.root.epoch_path))
        return take_savepoint(self.runtime.session(), self.app, self.root, target)

    def warm_up(self, scratch: Location, enough: Callable[[], bool]) -> None:
        """Run the warm-up of a standby, until it is finished or ``enough`` returns True (``warmup.warm_up``)."""
        kafka, tasks = self.settings.kafka, self.settings.spark.parallelism
        warm_up(self.runtime.session(), self.app, kafka, tasks, scratch, enough)

    def run(self) -> None:
        """Run the app until it has drained. Raise ``StreamError`` if it fails for good."""
        epoch = self.root.initialise(AppIdentity.of(self.app.name, self.app.key_space), epoch=self.runtime.epoch)
        self.root.check_stages(len(self.app.stages))
        if self.root.last_committed() is not None:  # the state of the shards holds the initial state by now
            remove_folder(self.root.initial)
        self._reject_clock_ahead()
        # Freeze the loaded objects, so that the garbage collector looks only at objects of the cuts. Its full
        # collections were a third of the driver's cost of output.
        gc.freeze()
        try:
            with BrokerWatch(self.settings.kafka, [*kafka_topics(self.app)]), self._schema_lookups() as self._lookups:
                self._run_with_restarts(epoch)
        except (Py4JError, ConnectionError) as error:
            if (jvm_end := explain_jvm_end(self.runtime.session())) is not None:
                raise jvm_end from error
            raise
        finally:
            self._boundary.close()

    def _schema_lookups(self) -> contextlib.AbstractContextManager[SchemaLookups | None]:
        registry, store = self.settings.registry, self._schemas
        if registry is None or store is None:
            return contextlib.nullcontext()
        return SchemaLookups(registry, store, self.app.registry_topics)

    def _reject_clock_ahead(self) -> None:
        """Raise ``ConfigError`` if the wall clock is too far behind the clock of the last cut (``cut_clock``)."""
        last, limit_ms = self.root.offsets.last(), self.settings.max_clock_ahead_ms
        if last is not None:
            reject_clock_ahead(last.clock, limit_ms, f"checkpoint {self.root.path}", wall_clock_ms())

    def _run_with_restarts(self, epoch: int) -> None:
        """Start the query again after each ``Retryable``, until the app has drained.

        A committed cut resets the count of failures. Raises ``Permanent`` after too many failures in a row, or when a
        task fails a second time with the same error: what it computes is a function of its input.
        """
        failures, pause_ms, last_committed = 0, self.settings.restarts.pause_ms, -1
        last_error = ""
        while not self._boundary.draining:
            try:
                self._run_query(epoch)
                return
            except _StreamsPublished:
                continue
            except Retryable as error:
                if self._cuts_committed > last_committed:
                    failures, pause_ms, last_committed = 0, self.settings.restarts.pause_ms, self._cuts_committed
                    last_error = ""
                failures += 1
                if isinstance(error, TaskFailed) and str(error) == last_error:
                    raise Permanent(f"app {self.app.name}: a task failed twice with the same error: {error}") from error
                last_error = str(error)
                self.listeners.failure(error)
                if failures > self.settings.restarts.attempts:
                    raise Permanent(
                        f"app {self.app.name}: gave up after {failures} failures in a row: {error}"
                    ) from error
            self._boundary.wait(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, self.settings.restarts.pause_max_ms)

    def _run_query(self, epoch: int) -> None:
        """Open the writer and the sinks, check the checkpoint, and run one query until it ends.

        All that needs no Spark comes first, because the first session may still be starting.
        """
        lease = self.runtime.lease
        self._projection = None
        self._take_streams()
        hooks = WriterHooks(
            still_owner=lease.check, check_history=partial(self._check_history, epoch), replace_oversized=_truncate
        )
        writer_id = WriterId(self.app.name, epoch, "driver")
        delivery = self.settings.delivery
        make_writer = ExactlyOnceWriter
        if self.settings.mode is CheckpointingMode.AT_LEAST_ONCE:
            make_writer = AtLeastOnceWriter
        with make_writer(
            self.settings.kafka,
            writer_id,
            self.settings.markers_topic,
            delivery=delivery,
            hooks=hooks,
            topics=self.root.add_written_topics(self.app.lanes.values()),
        ) as writer:
            sink_hooks = SinkHooks(still_owner=lease.check)
            outputs = OutputCommitter(self.app, writer, [make(sink_hooks) for make in self.settings.sinks])
            self.root.verify()
            self.listeners.waiting("the app's last transactions at Kafka")
            self.root.check_marker(writer.open(), epoch, MARKER_EVERY)
            if self.settings.sinks:
                self.listeners.waiting("the systems that the app writes rows to")
            written = outputs.open(writer_id)
            try:
                for cut in written:
                    self._check_history(epoch, cut)
                self._reject_rewind(epoch)
                self._failure = None
                self.listeners.waiting("Spark's session")
                planner, session = self._planner(), self.runtime.session()
                self._sweep_stages(count_retained(session))
                self.listeners.waiting("the first cut")
                query = self._start(session, _Cuts(self, planner, session, outputs, epoch))
                try:
                    self._poll_progress(query)
                finally:
                    query.stop()
            finally:
                outputs.close()
        self._raise_failure(query)

    def _sweep_stages(self, retained: int) -> None:
        """Remove what dead attempts have left in the files of the stages. All checks are made, and no batch runs."""
        self.runtime.lease.check()
        committed = self.root.last_committed()
        if committed is None:
            self.root.remove_other_stages(len(self.app.stages))
        elif len(self.app.stages) > 1:
            try:
                sweep_stages(open_object_store(self.root.stages), committed, retained)
            except CorruptState as error:
                raise name_savepoint(error, self._newest_savepoint()) from error

    def _take_streams(self) -> None:
        """Give the app the streams that were published before the next batch. Raises ``CorruptState`` if the
        checkpoint has lost them, and ``ConfigError`` if they do not fit the settings."""
        batch, log = self.root.next_batch, self.root.offsets
        for planned in (batch - 1, batch):
            if (bounds := log.read(planned)) is not None:
                self.root.streams.check(planned, bounds.streams)
        streams = self.root.streams.in_force(batch)
        self.app = self._app_of_settings.with_streams(streams)
        self._published = False
        if streams:
            shown = ", ".join(map(str, streams))
            _LOG.info("app %s: from batch %d on it has %s", self.app.name, batch, shown)

    def keep_streams(self, batch: int, published: Sequence[PublishedDocument]) -> None:
        """Write the streams that a batch has accepted to the checkpoint, for the batches after it."""
        if published:
            before = self.root.streams.in_force(batch)
            self.root.streams.write(batch + 1, merge_documents(before, published))
            self._published = True

    def _check_history(self, epoch: int, written: CutId) -> None:
        """Raise an error unless the checkpoint planned ``written``: ``Fenced`` if another process overtook this one,
        else ``ConfigError``."""
        try:
            self.root.check_history(written, epoch)
        except ConfigError as error:
            if self._cuts_committed:
                raise Fenced(str(error)) from error
            raise

    def _reject_rewind(self, epoch: int) -> None:
        """Before the first batch after a restore, raise ``ConfigError`` if its output was written before
        (``rewind_guard``)."""
        origin = RestoreOrigin.read(self.root.restored_from_path)
        if origin is None or self.root.last_committed() is not None:
            return

        def last_batch(earlier: int) -> int | None:
            writer, settings = WriterId(self.app.name, earlier, "driver"), self.settings
            marker = read_marker(settings.kafka, settings.markers_topic, writer, settings.delivery.recovery_ms)
            return None if marker is None else marker.cut.batch

        check_not_behind_output(origin, epoch, last_batch)

    def lag(self) -> Lag:
        """Return how far the app is behind its inputs. Any thread may call it."""
        return Lag() if self._lag_tracker is None else self._lag_tracker.current()

    def _planner(self) -> Planner:
        topics = KafkaPartitionOffsets(self.settings.kafka, [*kafka_topics(self.app)])
        bounds = open_bounds(self.app, self.root.offsets, topics, self.settings.ending_offsets)
        self._lag_tracker = LagTracker(with_files(topics, bounds), self.app.topics)
        starting = self.settings.starting_offsets
        streams = digest_documents(self.root.streams.in_force(self.root.next_batch))
        return Planner(self.app, self.root.offsets, self._lag_tracker, starting, bounds=bounds, streams=streams)

    def _start(self, session: SparkSession, cuts: _Cuts) -> StreamingQuery:
        """Start the query. Until the first batch is committed, its shards begin with the initial state, if any."""
        settings = self.settings
        has_initial = self.root.last_committed() is None and list_names(self.root.initial)
        initial = open_object_store(self.root.initial) if has_initial else None
        tasks, folder = settings.spark.parallelism, open_object_store(self.root.stages)
        frame = build_query(session, self.app, settings.kafka, tasks, folder, initial, self._schemas)
        stream = frame.writeStream.foreachBatch(cuts.run).outputMode("append")
        stream = stream.option("checkpointLocation", for_spark(self.root.spark)).queryName(self.app.name)
        try:
            return stream.trigger(processingTime=f"{settings.trigger_ms} milliseconds").start()
        except (Py4JJavaError, PySparkException) as error:
            raise self._explain(error) from error

    def _poll_progress(self, query: StreamingQuery) -> None:
        """Forward Spark's metrics until the query ends. They are read only after a cut, because reading costs the JVM
        time."""
        while query.isActive:
            time.sleep(_POLL_S)
            self.watch.check()
            if self._last_progress < self._last_batch:
                self._forward_progress(query)

    def _forward_progress(self, query: StreamingQuery) -> None:
        """Forward Spark's metrics of the batches since the last call.

        The metrics of a batch are a large text. Usually one batch is new, so ``lastProgress`` is enough.
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
        error = self._failure or query.exception()
        if error is not None:
            raise self._explain(error) from error

    def _explain(self, error: BaseException) -> StreamError:
        """Return the error of streamcore for an error of Spark, or of the callback."""
        if not isinstance(error, Py4JError | PySparkException):
            return TaskFailed(f"{type(error).__name__}: {error}")
        return explain_failure(str(error), self.root, self._newest_savepoint, self.settings.spark.local_dir)

    def _newest_savepoint(self) -> str | None:
        """Return the name of the newest savepoint of the app, or None if none can be read."""
        names: list[str] = []
        if self.settings.savepoints:
            with contextlib.suppress(StreamError):
                repository = SavepointRepository(open_object_store(self.settings.savepoints), self.app.name)
                names = [savepoint.manifest.name for savepoint in repository]
        return names[-1] if names else None

    def on_cut_committed(self, report: CutReport, end: StreamOffsets) -> None:
        """Record and report a committed cut that ends at ``end``."""
        self._cuts_committed += 1
        if self._lag_tracker is not None:
            self._lag_tracker.record_commit(end)
        self._last_batch = report.batch
        self.listeners.report(report)

    def plan_cut(self, planner: Planner, batch: int) -> CutBounds:
        """Run step 1 of the module's docstring.

        Raises ``Drained`` once a drain is requested, and ``Fenced`` if another process owns the checkpoint; no new plan
        is written then.
        """
        if self._published:
            raise _StreamsPublished(f"app {self.app.name}: from batch {batch} on it has streams that were published")
        lease, begun = self.runtime.lease, self.root.offsets.read(batch) is not None

        def on_poll() -> None:
            lease.check(max_age_s=_LEASE_CHECK_AGE_S)
            self._boundary.on_boundary(batch, begun=begun)

        def before_write() -> None:
            if self._lookups is not None:
                self._lookups.prefetch()
            lease.check()

        lease.check()
        self._boundary.on_boundary(batch, begun=begun)
        return planner.plan_cut(batch, on_poll, before_write)

    def schema_pins(self, batch: int) -> SchemaPins | None:
        """Return the schemas that are pinned for a batch: some only if it has run before."""
        return None if self._schemas is None else SchemaPins(batch, tuple(sorted(self._schemas.absent(batch), key=str)))

    def project(self, cut: CutBounds) -> Projection | None:
        """Return which fields and routes of the events of a cut are read; None for all."""
        ranges = control_ranges(self.app, cut)
        is_known = self._projection is not None and self._control_keys.all_begin_with(self.app.data_keys, ranges)
        return self._projection if is_known else None

    def take_projection(self, rows: Sequence[ShardRow], counters: Mapping[str, int]) -> None:
        """Take from the shards of a cut what they read in the next one. ``counters``: of all shards."""
        reads = (decode_reads(row.reads) for row in rows)
        watermark_ms = max((row.watermark_ms for row in rows), default=0)
        self._projection = Projection.of_next_cut(self.app, reads, watermark_ms, counters)

    def record_failure(self, error: BaseException) -> None:
        """Keep the error of a cut, because Spark forwards only its text."""
        self._failure = error


@dataclass(frozen=True, slots=True)
class _Cuts:
    """Runs the cuts of one query; ``run`` is Spark's callback."""

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
        # 1. No row of the batch has been read yet.
        cut = self.runner.plan_cut(self.planner, batch)
        with self.runner.watch.cut(batch, "tasks of Spark, which read, decode and compute"):
            self._run_planned(frame, batch, cut)

    def _run_planned(self, frame: DataFrame, batch: int, cut: CutBounds) -> None:
        """Run steps 2 to 4."""
        pins = self.runner.schema_pins(batch)
        projection = self.runner.project(cut)
        assignments = self.planner.assign(cut, self.runner.settings.spark.parallelism, pins, projection)
        self.session.sparkContext.setLocalProperty(ASSIGNMENTS_PROPERTY, encode_assignments(assignments))
        self.session.sparkContext.setLocalProperty(BATCH_PROPERTY, str(batch))
        # 2. The only action on the frame: a second one would run the whole plan again.
        started_s = time.perf_counter()
        rows = collect_shards(frame)
        collected_s = time.perf_counter()
        published = [PublishedDocument(*row) for result in rows for row in json.loads(result.streams)]
        self.runner.keep_streams(batch, published)
        counters = _sum_counters(row.counters for row in rows)
        self.runner.take_projection(rows, counters)
        # 3. All lanes of all shards, in the order of the shards.
        blobs = [row.records for row in rows if row.produced]
        committed = self.outputs.commit(cut.id(batch), blobs, self.runner.watch.enter)
        # 4. Spark writes commits/<batch> when this returns.
        committed_s = time.perf_counter()
        watermarks, newest_event_ms = _by_topic(self.runner.app, [row.partitions for row in rows])
        self.planner.alignment.record(cut, watermarks)
        first_records_ms = take_first_records(counters)
        self.runner.on_cut_committed(
            CutReport(
                batch=batch,
                epoch=self.epoch,
                outcome=committed.outcome,
                events=max((r.events for r in rows), default=0),
                lanes=committed.lanes,
                reasons=committed.reasons,
                offsets=cut.end.by_topic(),
                clock_ms=cut.end.clock.clock_ms,
                clock_ahead_ms=cut.end.clock.ahead_ms,
                watermark_ms=max((r.watermark_ms for r in rows), default=0),
                watermarks=watermarks,
                newest_event_ms=newest_event_ms,
                run_ms=round((collected_s - started_s) * 1000),
                commit_ms=round((committed_s - collected_s) * 1000),
                state_bytes=sum(r.state_bytes for r in rows),
                shards_loaded=sum(r.shards_loaded for r in rows),
                counters=counters,
                oversized=committed.receipt.oversized,
                sinks=committed.sinks,
                shards=len(rows),
                latencies_ms=lane_latencies(self.runner.app, committed.lanes, first_records_ms, wall_clock_ms()),
                starts=cut.start.by_topic(),
            ),
            cut.end,
        )


def _by_topic(app: App, texts: Iterable[str]) -> tuple[dict[str, dict[str, int]], int]:
    """Return the watermarks in milliseconds, by topic and partition, and the time of the newest event, 0 without one.
    ``texts``: JSON of (source partition, watermark, newest event)."""
    watermarks: dict[str, dict[str, int]] = defaultdict(dict)
    newest_event_ms = 0
    for number, watermark_ms, event_ms in (entry for text in texts for entry in json.loads(text)):
        topic, partition = to_topic_partition(number, app.topics)
        watermarks[topic][str(partition)] = watermark_ms
        newest_event_ms = max(newest_event_ms, event_ms)
    return dict(watermarks), newest_event_ms


def _sum_counters(texts: Iterable[str]) -> dict[str, int]:
    """Add up the counters of all shards. ``texts``: JSON objects of counters by name."""
    total: Counter[str] = Counter()
    for text in texts:
        total.update(json.loads(text))
    return dict(total)


def _truncate(record: OutRecord, limit_bytes: int) -> OutRecord:
    """Return an oversized record cut to ``limit_bytes``, with a header that gives the full length of its value."""
    value = record.value or b""
    length_header = (("truncated_from_bytes", str(len(value)).encode()),)
    short = OutRecord(record.topic, (record.key or b"")[:1024] or None, None, record.headers + length_header)
    room = max(0, limit_bytes - record_bytes(short))
    return OutRecord(short.topic, short.key, value[:room], short.headers)
