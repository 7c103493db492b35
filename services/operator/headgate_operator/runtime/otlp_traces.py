"""Sends traces of finished upgrades by OTLP over HTTP, if OpenTelemetry's environment variables name an endpoint.

Callers never wait: a finished upgrade goes into a bounded queue, and a thread sends it. If the queue is full or the
endpoint does not accept a trace, the trace is dropped and counted. A trace is sent at most once, after the end of the
upgrade was written to the status. Without an endpoint the OpenTelemetry library is not imported.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from headgate_operator.resources.status import Upgrade
from headgate_operator.runtime.metrics import Counters
from headgate_operator.traces import AppRef, Span, trace_spans
from streamcore.environment import EnvironmentVariable, Reader

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

_LOG = logging.getLogger(__name__)
_ENDPOINTS = (
    EnvironmentVariable(
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "URL that traces of upgrades are sent to, by OTLP over HTTP. It precedes OTEL_EXPORTER_OTLP_ENDPOINT.",
        Reader.OPERATOR,
        default="no traces",
    ),
    EnvironmentVariable(
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "URL of an OTLP endpoint; traces of upgrades are sent to the path `/v1/traces` below it.",
        Reader.OPERATOR,
        default="no traces",
    ),
)
_DEFAULT_NAME = "headgate-operator"
_SERVICE_NAME = EnvironmentVariable(
    "OTEL_SERVICE_NAME", "The `service.name` of traces.", Reader.OPERATOR, default=f"`{_DEFAULT_NAME}`"
)
_QUEUE_SIZE = 100
#: Seconds that ``close`` waits for each of its steps.
_CLOSE_TIMEOUT_S = 3.0
_MS_NS = 1_000_000


class Traces(Protocol):
    """Receives finished upgrades and sends their traces."""

    def upgrade_ended(self, app: AppRef, upgrade: Upgrade) -> None:
        """Send the trace of a finished upgrade whose end is in the written status. Return at once; raise nothing."""

    def close(self) -> None:
        """Send the queued traces, within some seconds."""


class NoTraces:
    """Sends nothing."""

    def upgrade_ended(self, app: AppRef, upgrade: Upgrade) -> None:
        """See ``Traces``."""

    def close(self) -> None:
        """See ``Traces``."""


NO_TRACES: Traces = NoTraces()


def traces(environment: Mapping[str, str], counters: Counters) -> Traces:
    """Return the sender of traces that the environment variables configure."""
    return OtlpTraces(counters) if any(environment.get(name) for name in _ENDPOINTS) else NO_TRACES


class OtlpTraces:
    """Sends traces over HTTP, one trace per request. Counts ``traces`` as ``sent`` or ``dropped``."""

    def __init__(self, counters: Counters, queue_size: int = _QUEUE_SIZE) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource

        self._counters = counters
        self._exporter: SpanExporter = OTLPSpanExporter()
        self._resource = Resource.create({"service.name": os.environ.get(_SERVICE_NAME) or _DEFAULT_NAME})
        self._waiting: queue.Queue[tuple[AppRef, Upgrade] | None] = queue.Queue(queue_size)
        self._thread = threading.Thread(target=self._work, name="traces", daemon=True)
        self._thread.start()

    def upgrade_ended(self, app: AppRef, upgrade: Upgrade) -> None:
        """See ``Traces``."""
        try:
            self._waiting.put_nowait((app, upgrade))
        except queue.Full:
            self._counters.add("traces", "dropped")

    def close(self) -> None:
        """See ``Traces``."""
        try:
            self._waiting.put(None, timeout=_CLOSE_TIMEOUT_S)
        except queue.Full:
            _LOG.warning("%d traces were not sent", self._waiting.qsize())
        self._thread.join(_CLOSE_TIMEOUT_S)
        self._exporter.shutdown()
        self._thread.join(_CLOSE_TIMEOUT_S)

    def _work(self) -> None:
        while (ended := self._waiting.get()) is not None:
            self._counters.add("traces", "sent" if self._send(trace_spans(*ended)) else "dropped")

    def _send(self, spans: Sequence[Span]) -> bool:
        from opentelemetry.sdk.trace.export import SpanExportResult

        try:
            return self._exporter.export(_to_readable_spans(spans, self._resource)) is SpanExportResult.SUCCESS
        except Exception:  # an error of one trace must not stop the thread
            _LOG.exception("the trace of an upgrade was not sent")
            return False


def _to_readable_spans(spans: Sequence[Span], resource: Resource) -> list[ReadableSpan]:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

    def context(span: Span, span_id: int) -> SpanContext:
        return SpanContext(span.trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    return [
        ReadableSpan(
            span.name,
            context(span, span.span_id),
            parent=context(span, span.parent_id) if span.parent_id else None,
            resource=resource,
            attributes=span.attributes,
            kind=SpanKind.INTERNAL,
            instrumentation_scope=InstrumentationScope("headgate"),
            status=Status(StatusCode.ERROR if span.failed else StatusCode.UNSET),
            start_time=span.start_ms * _MS_NS,
            end_time=span.end_ms * _MS_NS,
        )
        for span in spans
    ]
