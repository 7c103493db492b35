"""The instruments and spans of one app: an observer of its cuts (``streamcore.service.observers``)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.trace import SpanKind, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import Attributes

from streamcore.engine.lag import Lag
from streamcore.errors import Retryable
from streamcore.memory.memory_use import MemoryUse
from streamcore.telemetry.definitions import CUT_DURATION, LANE_LATENCY, METRICS, MetricDefinition, MetricKind
from streamcore.telemetry.exporters import TelemetrySettings, export
from streamcore.telemetry.totals import MetricTotals

if TYPE_CHECKING:
    from streamcore.engine.report import CutReport

#: Upper bounds of the histogram's buckets in seconds. Most cuts take tenths of a second; with a backlog, seconds.
_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_MS_NS = 1_000_000
_W3C = TraceContextTextMapPropagator()


class Telemetry:
    """Exports the metrics and traces of the one app of a process, from its creation until the context manager exits.

    ``ConfigError`` if the Prometheus port is in use.
    """

    def __init__(self, settings: TelemetrySettings) -> None:
        self.totals = MetricTotals()
        self._lag: Callable[[], Lag] = Lag
        self._exporting = export(settings)
        self._tracer = self._exporting.tracer
        meter = self._exporting.meters.get_meter("headgate")
        self._durations = meter.create_histogram(
            CUT_DURATION.name,
            CUT_DURATION.unit,
            CUT_DURATION.description,
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )
        self._latencies = meter.create_histogram(
            LANE_LATENCY.name,
            LANE_LATENCY.unit,
            LANE_LATENCY.description,
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )
        self._declare(meter)

    def __enter__(self) -> Telemetry:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._exporting.close()

    def observers(self) -> Sequence[Telemetry]:
        """Return this object, the only observer of telemetry."""
        return (self,)

    def watch(self, lag: Callable[[], Lag]) -> None:
        """Set the function that returns the lag; it is called at each scrape."""
        self._lag = lag

    def watch_memory(self, memory: Callable[[], MemoryUse | None]) -> None:
        """Set the function that returns the memory in use, None without a limit; it is called at each scrape."""
        self.totals.memory = memory

    def watch_lineage(self, counts: Mapping[str, int]) -> None:
        """Set the counts of lineage events by their result, which are read at each scrape."""
        self.totals.lineage = counts

    def savepoint_done(self, at_ms: int) -> None:
        """Record a complete savepoint. ``at_ms``: its time in epoch milliseconds."""
        self.totals.savepoint_at_ms = at_ms

    def command_done(self, do: str, traceparent: str | None, began_ns: int) -> None:
        """Export the span of a finished command, from ``began_ns`` (epoch nanoseconds) to now.

        Its parent is the span of the requester, ``traceparent`` (W3C Trace Context); it has none if that is missing or
        invalid. ``do``: the command.
        """
        parent = _W3C.extract({"traceparent": traceparent or ""}, Context())
        self._tracer.start_span(do, parent, SpanKind.SERVER, start_time=began_ns).end(max(began_ns, time.time_ns()))

    def cut(self, report: CutReport) -> None:
        """Record the report of a finished cut."""
        self.totals.add(report)
        self._durations.record(report.run_ms / 1000, {"phase": "run"})
        self._durations.record(report.commit_ms / 1000, {"phase": "commit"})
        for name, sink in report.sinks.items():
            self._durations.record(sink.ms / 1000, {"phase": f"sink {name}"})
        for lane, ms in report.latencies_ms.items():
            self._latencies.record(ms / 1000, {"lane": lane})
        trace_cut(self._tracer, report, time.time_ns())

    def progress(self, progress: Mapping[str, object]) -> None:
        """Record the durations in Spark's progress of a batch, such as planning and commit."""
        durations = progress.get("durationMs")
        if isinstance(durations, Mapping):
            for phase, ms in durations.items():
                self._durations.record(ms / 1000, {"phase": f"spark {phase}"})

    def failure(self, error: Retryable) -> None:  # noqa: ARG002 - the error is in the log
        """Count a restart of the query."""
        self.totals.restarts += 1

    def _declare(self, meter: Meter) -> None:
        for metric in METRICS:
            if metric.kind is MetricKind.HISTOGRAM:
                continue
            counts = metric.kind is MetricKind.COUNTER
            create = meter.create_observable_counter if counts else meter.create_observable_gauge
            create(metric.name, [partial(self._observe, metric)], metric.unit, metric.description)

    def _observe(self, metric: MetricDefinition, _: CallbackOptions) -> Iterable[Observation]:
        for value, labels in metric.read(self.totals, self._lag):
            yield Observation(value, dict(zip(metric.labels, labels, strict=True)))


def trace_cut(tracer: Tracer, report: CutReport, end_ns: int) -> None:
    """Export the spans of a cut that ended at ``end_ns``: the cut, and in it the run, each sink and the transaction."""
    commit_ns = end_ns - report.commit_ms * _MS_NS
    start_ns = commit_ns - report.run_ms * _MS_NS
    position = {"headgate.batch": report.batch, "headgate.epoch": report.epoch, "headgate.events": report.events}
    cut = tracer.start_span("cut", kind=SpanKind.CONSUMER, attributes=position, start_time=start_ns)
    parent = set_span_in_context(cut)
    tracer.start_span("run", parent, start_time=start_ns).end(commit_ns)
    at_ns = commit_ns
    for name, sink in report.sinks.items():
        attributes: Attributes = {
            "headgate.sink": name,
            "headgate.rows": sink.rows,
            "headgate.result": str(sink.result),
        }
        span = tracer.start_span("sink", parent, SpanKind.PRODUCER, attributes, start_time=at_ns)
        at_ns += sink.ms * _MS_NS
        span.end(at_ns)
    records = {"headgate.records": sum(report.lanes.values())}
    tracer.start_span("transaction", parent, SpanKind.PRODUCER, records, start_time=at_ns).end(max(at_ns, end_ns))
    cut.end(end_ns)
